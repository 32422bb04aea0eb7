"""A machine with GPUs that has none: programs that train, written for CUDA, learn what they learn on the CPU."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from torch_impl.instruments.pretended import _patches, pretend
from torch_impl.instruments.virtual_devices import Machine


@pytest.fixture
def gpus():
    with pretend(2):
        yield


class Net(nn.Module):
    """A small network for classes."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8)
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        return self.last(functional.relu(self.norm(self.first(x))))


def trained(device, make, steps=3, **settings):
    """The parameters after some steps of a training loop as tutorials write it."""
    torch.manual_seed(0)
    model = Net().to(device)
    optimizer = make(model.parameters(), lr=0.05, **settings)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    x, y = torch.randn(6, 4), torch.arange(6) % 3
    for _ in range(steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    model.load_state_dict(copy.deepcopy(model.state_dict()))
    return torch.cat([each.detach().cpu().flatten() for each in model.parameters()])


OPTIMIZERS = [
    (torch.optim.SGD, {"momentum": 0.9}),
    (torch.optim.SGD, {"fused": True}),
    (torch.optim.Adam, {}),
    (torch.optim.Adam, {"foreach": True}),
    (torch.optim.Adam, {"capturable": True}),
    (torch.optim.AdamW, {"fused": True}),
    (torch.optim.RMSprop, {}),
    (torch.optim.Adagrad, {}),
]


@pytest.mark.parametrize(("make", "settings"), OPTIMIZERS)
def test_a_model_learns_what_it_learns_on_the_cpu(gpus, make, settings):
    plain = trained("cpu", make, **{name: value for name, value in settings.items() if name != "capturable"})
    torch.testing.assert_close(trained("cuda:1", make, **settings), plain, rtol=0.0, atol=1e-5)
    assert not torch.equal(plain, trained("cpu", make, steps=0))


class Checkpointed(nn.Module):
    """Computes its forward pass twice, with the same dropout."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False)


MODULES = [
    (lambda: nn.Embedding(5, 4), [torch.tensor([[1, 2]])]),
    (lambda: nn.Conv2d(2, 3, 3, padding=1), [torch.randn(2, 2, 4, 4)]),
    (lambda: nn.BatchNorm2d(2), [torch.randn(2, 2, 4, 4)]),
    (lambda: nn.LSTM(4, 4, 2, bidirectional=True), [torch.randn(3, 2, 4)]),
    (lambda: nn.GRU(4, 4, batch_first=True), [torch.randn(2, 3, 4)]),
    (lambda: nn.MultiheadAttention(4, 2), [torch.randn(3, 2, 4)] * 3),
    (lambda: nn.Transformer(4, 2, 1, 1, 8, batch_first=True), [torch.randn(2, 3, 4), torch.randn(2, 2, 4)]),
    (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)), [torch.randn(3, 4)]),
    (lambda: nn.Dropout(0.5), [torch.ones(3, 4)]),
    (Checkpointed, [torch.randn(3, 4)]),
]


@pytest.mark.parametrize("number", range(len(MODULES)))
def test_a_module_computes_what_it_computes_on_the_cpu(gpus, number):
    make, inputs = MODULES[number]
    seen = []
    for device in ("cpu", "cuda:1"):
        torch.manual_seed(0)
        model = copy.deepcopy(make().to(device))
        given = [x.detach().clone().to(device).requires_grad_(x.is_floating_point()) for x in inputs]
        output = model(*given)
        output = output[0] if isinstance(output, tuple) else output
        assert str(output.device) == device
        output.square().sum().backward()
        gradients = [each.grad for each in (*given, *model.parameters()) if each.grad is not None]
        seen.append([each.detach().cpu() for each in (output, *gradients)])
    torch.testing.assert_close(seen[1], seen[0], rtol=1e-4, atol=1e-5)


def test_ctc_loss_takes_lengths_on_the_cpu(gpus):
    inputs, lengths = torch.randn(5, 1, 3).log_softmax(2), (torch.tensor([5]), torch.tensor([2]))
    plain = functional.ctc_loss(inputs, torch.tensor([[1, 2]]), *lengths)
    loss = functional.ctc_loss(inputs.cuda().requires_grad_(), torch.tensor([[1, 2]]).cuda(), *lengths)
    loss.backward()
    torch.testing.assert_close(loss.detach().cpu(), plain)


def test_autocast_casts_what_cuda_s_casts(gpus):
    x, half = torch.ones(2, 2, 4, device="cuda"), torch.ones(2, 2, 4, device="cuda", dtype=torch.float16)
    layers = [nn.Linear(4, 4), nn.LSTM(4, 4), nn.Conv1d(2, 2, 1), nn.LayerNorm(4)]
    attention, layers = nn.MultiheadAttention(4, 2).cuda(), [layer.cuda() for layer in layers]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        outputs = [layers[0](x), layers[1](x)[0], layers[2](x), attention(x, x, x)[0], x @ x.mT, torch.bmm(x, x.mT)]
        full = [
            layers[3](x.half()),
            x.half().softmax(0),
            x.half().sum(),
            functional.mse_loss(x.half(), x),
            x.half() ** 2,
        ]
        widest = torch.cat([x, half])
        with torch.autocast("cuda", enabled=False):
            off = layers[0](x)
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            functional.binary_cross_entropy(x * 0.5, x)
    assert {output.dtype for output in outputs} == {torch.bfloat16}
    assert {output.dtype for output in [*full, widest, off]} == {torch.float32}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_scaled_step_in_half_precision(gpus, dtype):
    model, scaler = Net().cuda(), torch.amp.GradScaler("cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    before = model.first.weight.detach().clone()
    with torch.autocast(device_type="cuda", dtype=dtype):
        output = model(torch.randn(6, 4, device="cuda"))
        loss = functional.cross_entropy(output, torch.arange(6, device="cuda") % 3)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    assert (output.dtype, loss.dtype, model.first.weight.grad.dtype) == (dtype, torch.float32, torch.float32)
    assert not torch.equal(model.first.weight, before)
    assert scaler.get_scale() == 65536.0


def test_a_gradient_that_is_not_finite_skips_the_step(gpus):
    model, scaler = nn.Linear(2, 1).cuda(), torch.amp.GradScaler("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.weight.tolist()
    scaler.scale(model(torch.full((1, 2), torch.inf, device="cuda")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert model.weight.tolist() == before
    assert scaler.get_scale() == 32768.0


@pytest.mark.parametrize("ids", [None, [0, 1]])
def test_data_parallel(gpus, ids):
    plain, seen = Net().eval(), []
    model = nn.DataParallel(copy.deepcopy(plain).cuda(), device_ids=ids)
    model.module.first.register_forward_hook(lambda module, inputs, output: seen.append(str(output.device)))
    x = torch.randn(6, 4)
    output = model(x)
    output.sum().backward()
    plain(x).sum().backward()
    assert seen == ["cuda:0", "cuda:1"]
    assert str(output.device) == "cuda:0"
    torch.testing.assert_close(model.module.first.weight.grad.cpu(), plain.first.weight.grad)


def test_a_model_on_two_gpus(gpus):
    net = Net()
    x = torch.randn(6, 4)
    net(x).sum().backward()
    expected = net.first.weight.grad.clone()
    net.zero_grad()
    net.first.to("cuda:0"), net.norm.to("cuda:1"), net.last.to("cuda:1")
    net.norm.reset_running_stats()
    net.last(functional.relu(net.norm(net.first(x.to("cuda:0")).to(net.norm.weight.device)))).sum().backward()
    assert [str(each.weight.grad.device) for each in (net.first, net.last)] == ["cuda:0", "cuda:1"]
    torch.testing.assert_close(net.first.weight.grad.cpu(), expected)


def test_everything_is_put_back():
    places = [(owner, name) for owner, name, _ in _patches(Machine(torch.device("cpu"), "cuda", 2))]
    before = [vars(owner).get(name) for owner, name in places]
    with pretend(2):
        inside = [vars(owner).get(name) for owner, name in places]
        torch.set_default_device("cuda:1")
    assert sum(one is not other for one, other in zip(before, inside, strict=True)) >= len(places) - 1  # one is None
    assert all(one is vars(owner).get(name) for one, (owner, name) in zip(before, places, strict=True))
    assert torch.zeros(1).device == torch.device("cpu")


def draws():
    torch.manual_seed(3)
    torch.cuda.manual_seed_all(5)
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    return [*model(torch.rand(3, 4)).flatten().tolist(), *torch.randperm(5).tolist()]


def test_a_model_on_the_cpu_draws_the_same_numbers():
    plain = draws()
    with pretend(2):
        assert draws() == plain
