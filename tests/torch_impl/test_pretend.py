"""A machine with GPUs that has none: tensors, modules and torch.cuda, as programs written for CUDA use them."""

import copy
import io

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from torch_impl.instruments.pretended import pretend
from torch_impl.instruments.pretended.devices import name
from torch_impl.instruments.pretended.runtime import NotPretendedError
from torch_impl.instruments.values import real


@pytest.fixture(autouse=True, scope="module")
def gpus():
    with pretend(2) as not_pretended:
        yield not_pretended


def ones(*shape, device="cuda", **settings):
    return torch.ones(*shape, device=device, **settings)


def within(device, function):
    with device:
        return function()


def by_default(device, function):
    torch.set_default_device(device)
    try:
        return function()
    finally:
        torch.set_default_device(None)


def loaded(value, **settings):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **settings)


def uniform():
    x = torch.empty(2, device="cuda:1")
    return x.uniform_()


# Each makes a tensor on the device of the first column.
PLACES = [
    ("cuda:0", lambda: torch.zeros(2, device="cuda")),
    ("cuda:1", lambda: torch.zeros(2, device="cuda:1")),
    ("cuda:1", lambda: torch.zeros(2, device=torch.device("cuda", 1))),
    ("cuda:1", lambda: torch.zeros(2, device=1)),
    ("cuda:1", lambda: torch.zeros(2, device=torch.device(1))),
    ("cuda:1", lambda: torch.ones(2).to("cuda:1")),
    ("cuda:1", lambda: torch.ones(2).to(1)),
    ("cuda:0", lambda: torch.ones(2).to(torch.device("cuda"))),
    ("cuda:1", lambda: torch.ones(2).to(device="cuda:1", dtype=torch.float16)),
    ("cuda:1", lambda: torch.ones(2).to("cuda:1", torch.float64, non_blocking=True)),
    ("cuda:1", lambda: torch.ones(2).to(ones(1, device="cuda:1"))),
    ("cuda:0", lambda: torch.ones(2).cuda()),
    ("cuda:1", lambda: torch.ones(2).cuda(1, non_blocking=True)),
    ("cuda:1", lambda: torch.ones(2).cuda("cuda:1")),
    ("cuda:0", lambda: ones(2, device="cuda:1").cuda()),
    ("cpu", lambda: ones(2).cpu()),
    ("cpu", lambda: ones(2).to("cpu")),
    ("cuda:1", lambda: torch.tensor([1.0], device="cuda:1")),
    ("cuda:1", lambda: torch.as_tensor(np.ones(2), device="cuda:1")),
    ("cuda:1", lambda: torch.from_numpy(np.ones(2)).cuda(1)),
    ("cuda:1", lambda: torch.arange(3, device="cuda:1")),
    ("cuda:1", lambda: torch.full((2,), 3.0, device="cuda:1")),
    ("cuda:1", lambda: torch.randn(2, device="cuda:1", generator=torch.Generator(device="cuda:1"))),
    ("cuda:1", lambda: torch.randint(3, (2,), device="cuda:1")),
    ("cuda:1", lambda: torch.empty_like(torch.ones(2), device="cuda:1")),
    ("cuda:1", lambda: torch.zeros_like(ones(2, device="cuda:1"))),
    ("cuda:1", lambda: torch.eye(2, device="cuda:1")),
    ("cuda:0", lambda: ones(2).new_zeros(3)),
    ("cuda:0", lambda: ones(2).new_tensor([3.0])),
    ("cuda:1", lambda: torch.ones(2).new_full((2,), 1.0, device="cuda:1")),
    ("cuda:1", uniform),
    ("cuda:1", lambda: within(torch.device("cuda:1"), lambda: torch.zeros(2))),
    ("cuda:1", lambda: within(torch.device("cuda:1"), lambda: torch.tensor([1]))),
    ("cuda:1", lambda: within(torch.device("cuda:1"), lambda: nn.Linear(2, 2)).weight),
    ("cuda:1", lambda: within(torch.cuda.device(1), lambda: torch.zeros(2, device="cuda"))),
    ("cuda:1", lambda: within(torch.cuda.device(1), lambda: torch.zeros(2).cuda())),
    ("cuda:1", lambda: by_default("cuda:1", lambda: torch.rand(2))),
    ("cuda:1", lambda: by_default("cuda:1", lambda: torch.tensor(2.0))),
    ("cuda:1", lambda: nn.Linear(2, 2).to("cuda:1").weight),
    ("cuda:1", lambda: nn.Linear(2, 2).cuda(1).bias),
    ("cuda:1", lambda: nn.Linear(2, 2).to(1).bias),
    ("cuda:1", lambda: nn.Linear(2, 2, device="cuda:1").weight),
    ("cuda:1", lambda: nn.BatchNorm1d(2).to("cuda:1").running_mean),
    ("cpu", lambda: nn.Linear(2, 2).cuda().cpu().weight),
    ("cuda:1", lambda: copy.deepcopy(nn.Linear(2, 2).to("cuda:1")).weight),
    ("cuda:0", lambda: nn.LazyLinear(2).cuda()(ones(1, 3))),
    ("cuda:1", lambda: loaded(torch.ones(2), map_location="cuda:1")),
    ("cuda:1", lambda: loaded({"x": [torch.ones(2)]}, map_location=torch.device("cuda:1"))["x"][0]),
    ("cuda:1", lambda: loaded(ones(2, device="cuda:1"))),
    ("cpu", lambda: loaded(ones(2), map_location="cpu")),
    ("cuda:1", lambda: loaded(ones(2), map_location={"cuda:0": "cuda:1"})),
    ("cuda:1", lambda: loaded(nn.Linear(2, 2).cuda(1).state_dict())["weight"]),
    ("cuda:1", lambda: loaded(nn.Linear(2, 2).cuda(1), weights_only=False).weight),
]


@pytest.mark.parametrize("number", range(len(PLACES)))
def test_a_tensor_is_where_it_was_put(number):
    place, make = PLACES[number]
    tensor = make()
    assert str(tensor.device) == place
    assert tensor.device.type == place.partition(":")[0]
    assert tensor.is_cuda == (place != "cpu")
    assert tensor.get_device() == (-1 if place == "cpu" else int(place[-1]))
    assert isinstance(tensor.device, torch.device)
    assert str(torch.zeros(1).to(tensor.device).device) == place


def modified():
    x = ones(3).requires_grad_()
    y = x.exp()
    y.add_(1)
    y.sum().backward()


SAME = "Expected all tensors to be on the same device, but found at least two devices"
ERRORS = [
    (RuntimeError, f"{SAME}, cuda:1 and cpu!", lambda: ones(2, device="cuda:1") + torch.ones(2)),
    (RuntimeError, f"{SAME}, cuda:0 and cuda:1!", lambda: ones(2) @ ones(2, device="cuda:1")),
    (RuntimeError, f"{SAME}, cuda:0 and cpu!", lambda: nn.Embedding(3, 2).cuda()(torch.tensor([1]))),
    (RuntimeError, f"{SAME}, cuda:0 and cpu!", lambda: nn.Linear(3, 2).cuda()(torch.ones(1, 3))),
    (RuntimeError, f"{SAME}, cpu and cuda:0!", lambda: nn.Conv2d(1, 1, 1).cuda()(torch.ones(1, 1, 3, 3))),
    (RuntimeError, f"{SAME}, cpu and cuda:0!", lambda: torch.ones(2)[torch.tensor([0]).cuda()]),
    (RuntimeError, f"{SAME}, cuda:0 and cuda:1!", lambda: torch.stack([ones(1), ones(1, device="cuda:1")])),
    (
        RuntimeError,
        "input tensor at cpu and parameter tensor at cuda:0",
        lambda: nn.LSTM(2, 2).cuda()(torch.ones(3, 2)),
    ),
    (RuntimeError, "modified by an inplace operation: [torch.cuda.FloatTensor [3]]", modified),
    (RuntimeError, "a leaf Variable that requires grad", lambda: ones(2).requires_grad_().add_(1)),
    (IndexError, "index out of range", lambda: nn.Embedding(3, 2).cuda()(torch.tensor([5]).cuda())),
    (TypeError, "can't convert cuda:1 device type tensor to numpy. Use Tensor.cpu()", lambda: ones(2).cuda(1).numpy()),
    (TypeError, "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu()", lambda: np.asarray(ones(2))),
    (RuntimeError, "CUDA error: invalid device ordinal", lambda: torch.zeros(1, device="cuda:2")),
    (RuntimeError, "cannot pin 'torch.cuda.FloatTensor'", lambda: ones(2).pin_memory()),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_an_error_is_cuda_s_and_speaks_of_its_devices(number):
    kind, message, do = ERRORS[number]
    with pytest.raises(kind) as raised:
        do()
    assert message in name(raised.value)


VALUES = [
    (2.0, lambda: (ones(()) * 2).item()),
    ([1.0, 1.0], lambda: ones(2).tolist()),
    (3, lambda: int(ones(3).sum())),
    (1.5, lambda: float(ones(()) * 1.5)),
    (True, lambda: bool(ones(1) > 0)),
    (3, lambda: len(ones(3))),
    ([1.0, 1.0], lambda: [each.item() for each in ones(2)]),
    ([3.0, 3.0], lambda: (ones(2) * torch.tensor(3.0)).tolist()),
    ([1.0], lambda: ones(3)[torch.tensor([True, False, False]).cuda()].tolist()),
    ([1.0], lambda: ones(3)[torch.tensor([0])].tolist()),
    ([1.0, 1.0], lambda: list(ones(2).cpu().numpy())),
    ([1.0, 1.0], lambda: list(ones(2).numpy(force=True))),
    ("1.50", lambda: f"{ones(()) * 1.5:.2f}"),
    ("tensor([1., 1.], device='cuda:1')", lambda: repr(ones(2, device="cuda:1"))),
    ("tensor([1., 1.], device='cuda:0')", lambda: f"{ones(2)}"),
    ("tensor([1.], device='cuda:0', requires_grad=True)", lambda: str(ones(1).requires_grad_())),
    ("tensor([2.], device='cuda:0', grad_fn=<MulBackward0>)", lambda: str(ones(1).requires_grad_() * 2)),
    ("Parameter containing:\ntensor([1.], device='cuda:0', requires_grad=True)", lambda: str(nn.Parameter(ones(1)))),
    ("torch.cuda.HalfTensor", lambda: ones(2).half().type()),
    ([[5.0, 0.0], [1.0, 7.0]], lambda: changed_through_views().tolist()),
    ((2, 1), lambda: tuple(turned().shape)),
    (True, lambda: (lambda x: x.to("cuda:0") is x and x.cuda() is x)(ones(2))),
    ([1.0, 1.0], lambda: changed_copy().tolist()),
    ((5, 2), lambda: tuple(packed().data.shape)),
    (True, lambda: isinstance(nn.Linear(1, 1).cuda().weight, nn.Parameter)),
    ("cuda:1", lambda: str(by_default("cuda:1", torch.get_default_device))),
    ("cuda:1", lambda: name("lazy:1")),
    ("cpu", lambda: name(torch.device("cpu"))),
    ("cuda:0", lambda: name(torch.device("cuda"))),
    ("cuda:1", lambda: name(ones(1, device="cuda:1").device)),
    (torch.Tensor, lambda: type(real(ones(1)))),
    ([2.0, 2.0], lambda: torch.func.grad(lambda x: (x * x).sum())(ones(2)).tolist()),
    ([2.0, 2.0], lambda: within(torch.inference_mode(), lambda: (torch.ones(2).to("cuda:1") * 2).tolist())),
    ([3.0, 3.0], lambda: torch.compile(lambda x: x + 2)(ones(2)).tolist()),
    ([3.0, 3.0], lambda: torch.compile(mode="max-autotune")(lambda x: x + 2)(ones(2)).tolist()),
]


def changed_through_views():
    x = ones(2, 2)
    x[0].zero_()
    x.view(4)[3] = 7
    x.t()[0, 0] = 5
    return x


def changed_copy():
    x = ones(2)
    x.to("cuda:1").zero_()
    return x


def turned():
    x = ones(2)
    x.unsqueeze_(0)
    x.t_()
    return x + 1


def packed():
    lengths = torch.tensor([3, 2])
    return nn.LSTM(2, 2).cuda()(nn.utils.rnn.pack_padded_sequence(ones(3, 2, 2), lengths))[0]


@pytest.mark.parametrize("number", range(len(VALUES)))
def test_a_value_is_read(number):
    value, read = VALUES[number]
    assert read() == value


def test_parameters_stay_the_same_objects_when_a_module_is_moved():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = weight = model[0].weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for device, dtype in (("cuda", torch.float32), ("cuda:1", torch.float64), ("cpu", torch.float32)):
        model.to(device, dtype)
        before = weight.tolist()
        optimizer.zero_grad()
        model(torch.ones(1, 2, dtype=dtype).to(device)).sum().backward()
        optimizer.step()
        assert model[0].weight is model[1].weight is weight
        assert str(weight.device) == str(weight.grad.device) == str(torch.zeros(1).to(device).device)
        assert weight.dtype == dtype
        assert weight.tolist() != before
        assert isinstance(weight, nn.Parameter)


def test_a_gradient_moves_with_its_parameter():
    model = nn.Linear(2, 1)
    model(torch.ones(1, 2)).sum().backward()
    model.cuda()
    assert str(model.weight.grad.device) == "cuda:0"
    assert model.weight.grad.tolist() == [[1.0, 1.0]]


def test_hooks_of_a_parameter_stay_when_it_is_moved():
    model, seen = nn.Linear(2, 1), []
    model.weight.register_hook(lambda gradient: seen.append(str(gradient.device)))
    model.weight.register_post_accumulate_grad_hook(lambda weight: seen.append(str(weight.grad.device)))
    model.cuda()(ones(1, 2)).sum().backward()
    assert seen == ["cuda:0", "cuda:0"]


def test_pinned_memory_is_remembered():
    pinned = torch.ones(2, 2).pin_memory()
    assert pinned.is_pinned()
    assert pinned[0].is_pinned()
    assert torch.zeros(2, pin_memory=True).is_pinned()
    assert not torch.ones(2).is_pinned()
    assert not pinned.cuda().is_pinned()
    (batch,) = next(iter(DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2, pin_memory=True)))
    assert batch.is_pinned()


def test_torch_cuda_tells_of_the_devices():
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == torch.accelerator.device_count() == 2
    assert torch.accelerator.current_accelerator().type == "cuda"
    torch.cuda.set_device("cuda:1")
    assert torch.cuda.current_device() == torch.accelerator.current_device_index() == 1
    assert str(ones(1).device) == "cuda:1"
    torch.cuda.set_device(0)
    assert torch.cuda.get_device_properties(0).name == torch.cuda.get_device_name()
    assert torch.cuda.memory_allocated() == torch.cuda.max_memory_allocated(1) == 0
    assert torch.cuda.is_bf16_supported()


def calls(gpus):
    return {noted.call for noted in gpus}


def test_what_every_script_calls_is_no_news(gpus):
    gpus.clear()
    for function in (torch.cuda.synchronize, torch.cuda.empty_cache, torch.cuda.reset_peak_memory_stats):
        function()
    with torch.cuda.nvtx.range("work"):
        torch.cuda.memory.max_memory_allocated()
        torch.cuda.random.manual_seed_all(0)
    nn.DataParallel(nn.Linear(2, 2).cuda())(ones(4, 2))  # which uses streams by itself
    assert not gpus


def test_streams_and_events_are_passed_over_and_noted(gpus):
    gpus.clear()
    stream, start, end = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True), torch.Event("cuda")
    start.record()
    with torch.cuda.stream(stream):
        x = ones(2) * 2
    x.record_stream(stream)
    torch.cuda.current_stream().wait_stream(stream)
    end.record()
    assert f"{start.elapsed_time(end):.1f} ms" == "nan ms"
    assert end.query()
    assert isinstance(stream, torch.cuda.Stream)
    assert x.tolist() == [2.0, 2.0]
    asked = {"torch.cuda.Stream", "torch.cuda.Event", "torch.Event", "torch.cuda.stream", "torch.cuda.current_stream"}
    assert calls(gpus) == asked
    assert all("missing wait" in noted.instead and "test_pretend.py:" in noted.source for noted in gpus)


def test_a_line_is_noted_once(gpus):
    gpus.clear()
    for _ in range(3):
        torch.cuda.Stream()
    assert len(gpus) == 1


def test_a_reading_is_nan_and_noted(gpus):
    gpus.clear()
    stats = torch.cuda.memory_stats()
    assert np.isnan([stats["active.all.peak"], stats.get("other"), torch.cuda.utilization() / 2]).all()
    assert list(stats.items()) == []
    assert calls(gpus) == {"torch.cuda.memory_stats", "torch.cuda.utilization"}


@pytest.mark.parametrize(
    ("call", "do"),
    [
        ("torch.cuda.CUDAGraph", lambda: torch.cuda.CUDAGraph()),
        ("torch.cuda.make_graphed_callables", lambda: torch.cuda.make_graphed_callables(nn.Linear(2, 2), (ones(2),))),
        ("torch.cuda.caching_allocator_alloc", lambda: torch.cuda.caching_allocator_alloc(8)),
    ],
)
def test_what_a_program_needs_and_is_not_pretended_is_refused_by_name(gpus, call, do):
    gpus.clear()
    with pytest.raises(NotPretendedError, match=f"Virtual GPUs do not imitate {call}, which fails without a GPU"):
        do()
    assert call in calls(gpus)


def test_the_old_types_of_tensors_are_pytorch_s_and_need_a_build_with_cuda(gpus):
    if torch.backends.cuda.is_built():
        assert str(torch.ones(2).type(torch.cuda.FloatTensor).device) == "cuda:0"
    else:
        with pytest.raises(NotPretendedError, match=r"Virtual GPUs do not imitate torch\.cuda\.FloatTensor"):
            torch.ones(2).type(torch.cuda.FloatTensor)


def test_what_works_without_a_gpu_stays_torch_s_own(gpus):
    gpus.clear()
    assert torch.cuda.is_tf32_supported()
    assert [str(part.device) for part in torch.cuda.comm.scatter(ones(4), [0, 1])] == ["cuda:0", "cuda:1"]
    assert not isinstance(1, torch.cuda.CUDAGraph)
    assert not gpus
