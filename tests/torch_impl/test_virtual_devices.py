"""Virtual devices: real numbers, devices of their own, nn.DataParallel itself."""

import copy
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional

from torch_impl.instruments.virtual_functions import virtual_devices

CPU = torch.device("cpu")
ZERO, ONE, TWO = (torch.device("lazy", i) for i in range(3))


@pytest.fixture(autouse=True)
def virtual():
    with virtual_devices(CPU):
        yield


class Small(nn.Module):
    """A bit of everything: ids, convolution, batch norm, attention."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        self.convolution = nn.Conv2d(1, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.layer = nn.TransformerEncoderLayer(16, 2, 20, dropout=0.0, batch_first=True)
        self.output = nn.Linear(48, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.layer(self.embedding(ids))
        x = functional.relu(self.norm(self.convolution(x[:, None])))
        return self.output(x.mean(2).flatten(1))


# Adam turns the rounding of a gradient that is truly zero into steps.
@pytest.mark.parametrize(("kind", "tolerance"), [(torch.optim.SGD, 1e-12), (torch.optim.Adam, 1e-6)])
def test_a_model_trains_as_on_the_cpu(kind, tolerance):
    torch.manual_seed(0)
    plain, ids = Small().double(), torch.randint(0, 11, (5, 7))
    moved = copy.deepcopy(plain).to(ONE)
    for model, device in ((plain, CPU), (moved, ONE)):
        optimizer = kind(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(ids.to(device)).square().sum().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    for one, other in zip(plain.state_dict().values(), moved.state_dict().values(), strict=True):
        assert other.device == ONE
        torch.testing.assert_close(other.cpu(), one, rtol=0.0, atol=tolerance)


def test_data_parallel_is_the_real_class_and_equals_one_device():
    torch.manual_seed(0)
    plain, ids = Small().double().eval(), torch.randint(0, 11, (8, 7))
    parallel = nn.DataParallel(copy.deepcopy(plain).to(ZERO), device_ids=[ZERO, ONE, TWO])
    assert type(parallel).__module__ == "torch.nn.parallel.data_parallel"
    seen = []
    parallel.module.register_forward_hook(lambda module, inputs, outputs: seen.append((outputs.device, len(outputs))))
    outputs = parallel(ids.to(ZERO))
    outputs.sum().backward()
    plain(ids).sum().backward()
    assert seen == [(ZERO, 3), (ONE, 3), (TWO, 2)]
    for one, other in zip(plain.parameters(), parallel.module.parameters(), strict=True):
        assert other.grad.device == ZERO
        torch.testing.assert_close(other.grad.cpu(), one.grad, rtol=1e-12, atol=1e-12)


def test_data_parallel_refuses_a_model_that_is_elsewhere():
    parallel = nn.DataParallel(nn.Linear(2, 2).to(ONE), device_ids=[ZERO, ONE])
    with pytest.raises(RuntimeError, match="module must have its parameters and buffers on device lazy:0"):
        parallel(torch.ones(4, 2, device=ZERO))


def test_batch_norm_keeps_the_buffers_of_the_first_device():
    norm = nn.BatchNorm1d(2).to(ZERO)
    inputs = torch.tensor([[1.0, 1.0], [3.0, 3.0], [100.0, 100.0], [300.0, 300.0]])
    nn.DataParallel(norm, device_ids=[ZERO, ONE])(inputs.to(ZERO))
    assert norm.running_mean.cpu().tolist() == pytest.approx([0.2, 0.2])


def test_nothing_stays_patched():
    module = sys.modules["torch.nn.parallel.data_parallel"]
    inside = module.parallel_apply
    with virtual_devices(CPU):
        assert module.parallel_apply is inside
    assert module._get_available_device_type() == "lazy"


def test_autocast_does_on_virtual_devices_what_it_does_on_the_cpu():
    torch.manual_seed(0)
    plain, ids = Small(), torch.randint(0, 11, (5, 7))
    moved = copy.deepcopy(plain).to(ONE)
    outputs = []
    for model, device in ((plain, CPU), (moved, ONE)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outputs.append(model(ids.to(device)))
            loss = functional.mse_loss(outputs[-1], torch.zeros(5, 4, device=device))
        assert loss.dtype == torch.float32
        loss.backward()
    assert outputs[0].dtype == outputs[1].dtype == torch.bfloat16
    # Not to the bit: attention has a faster kernel on the CPU itself.
    torch.testing.assert_close(outputs[1].cpu(), outputs[0], rtol=0.02, atol=0.02)
    gradients = [model.output.weight.grad.cpu() for model in (plain, moved)]
    torch.testing.assert_close(*gradients, rtol=0.1, atol=0.1 * gradients[0].abs().max().item())
