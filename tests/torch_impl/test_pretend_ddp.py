"""A machine with GPUs that has none: DistributedDataParallel over gloo, with a gradient reduced for real."""

import multiprocessing

import pytest
import torch
from torch import distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from torch_impl.instruments.pretended import pretend


class Net(nn.Module):
    """A small network, normalised over the batch of all ranks."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(4, 8), nn.BatchNorm1d(8)
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        return self.last(functional.relu(self.norm(self.first(x))))


def in_two_processes(rank, path, answers):
    """A script of DistributedDataParallel, as tutorials write it, and what each rank saw."""
    with pretend(2):
        torch.cuda.set_device(rank)
        group = {"rank": rank, "world_size": 2, "device_id": torch.device("cuda", rank)}
        distributed.init_process_group("nccl", init_method=f"file://{path}", **group)
        distributed.init_process_group("nccl")
        torch.manual_seed(rank)
        model = nn.SyncBatchNorm.convert_sync_batchnorm(Net()).to(rank)
        model = DistributedDataParallel(model, device_ids=[rank])
        start = [each.tolist() for each in model.parameters()]
        model(samples()[rank::2].to(rank)).square().mean().backward()
        gradients = [each.grad.tolist() for each in model.parameters()]
        mean = model.module.norm.running_mean.tolist()
        total = torch.full((2,), rank + 1.0, device="cuda")
        distributed.all_reduce(total)
        other = torch.zeros(2, device="cuda")
        if rank:
            distributed.send(total * 2, 0)
        else:
            distributed.recv(other, 1)
        distributed.barrier(device_ids=[rank])
        answers.put((rank, start, gradients, mean, total.tolist(), other.tolist()))
        del model
        distributed.destroy_process_group()


def samples():
    return torch.arange(24.0).reshape(6, 4).cos()


@pytest.mark.slow
def test_distributed_data_parallel_over_two_processes(tmp_path):
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    child = context.Process(target=in_two_processes, args=(1, tmp_path / "store", answers), daemon=True)
    child.start()
    in_two_processes(0, tmp_path / "store", answers)
    child.join(60)
    (_, start, gradients, mean, total, other), (_, *others) = sorted([answers.get(), answers.get()])
    assert others == [start, gradients, mean, total, [0.0, 0.0]]
    assert (total, other) == ([3.0, 3.0], [6.0, 6.0])
    plain = Net()
    for parameter, values in zip(plain.parameters(), start, strict=True):
        parameter.data = torch.tensor(values)
    plain(samples()).square().mean().backward()
    expected = [each.grad for each in plain.parameters()]
    torch.testing.assert_close([torch.tensor(each) for each in gradients], expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(torch.tensor(mean), plain.norm.running_mean)


def test_an_unused_parameter_is_an_error(tmp_path):
    with pretend(1):
        distributed.init_process_group("nccl", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
        model = Net().cuda()
        model.unused = nn.Linear(2, 2).cuda()
        model = DistributedDataParallel(model, device_ids=[0])
        model(samples().cuda()).sum().backward()
        with pytest.raises(RuntimeError, match="Expected to have finished reduction in the prior iteration"):
            model(samples().cuda())
        del model
        distributed.destroy_process_group()
