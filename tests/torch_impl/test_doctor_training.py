"""What is seen of the training in a step: backward passes, gradients, optimizers, float16."""

import pytest
import torch
from observed import GPUS, line, observe
from torch import nn
from torch.optim import optimizer as optimizers

from parity.trace.keys import MODEL
from torch_impl.doctor.observer import Observer
from torch_impl.instruments.build import Building
from torch_impl.instruments.pretended import pretend

X = torch.arange(12.0).reshape(4, 3)


@pytest.fixture(autouse=True)
def gpus():
    with pretend(2):
        yield


def build(kind: type[torch.optim.Optimizer] = torch.optim.SGD, **settings) -> nn.Module:
    net = nn.Linear(3, 1)
    net.optimizer = kind(net.parameters(), **settings)  # made
    return net


def states(step) -> dict[str, str]:
    return {gradient.parameter: gradient.state for gradient in step.gradients}


def cleared_first(net, batch):
    net.optimizer.zero_grad()
    net(batch["x"]).mean().backward()
    net.optimizer.step()


def cleared_last(net, batch):
    net(batch["x"]).mean().backward()
    net.optimizer.step()
    net.zero_grad(set_to_none=False)


def never_cleared(net, batch):
    net(batch["x"]).mean().backward()
    net.optimizer.step()


@pytest.mark.parametrize(
    ("train", "kept"), [(cleared_first, []), (cleared_last, []), (never_cleared, ["weight", "bias"])]
)
def test_gradients_are_seen_before_they_are_cleared(train, kept):
    seen = observe(build, train, 2, x=X)
    assert [states(step) for step in seen.steps] == [{"weight": "finite", "bias": "finite"}] * 2
    assert [step.backwards[0].kept for step in seen.steps] == [[], kept]
    assert seen.steps[0].backwards[0].source == line(train, "backward()")


@pytest.mark.parametrize(
    ("loss", "state"),
    [(lambda y: y.mean() * 0.0, "zero"), (lambda y: y.mean() * torch.inf, "not_finite"), (torch.Tensor.detach, "none")],
)
def test_states_of_gradients(loss, state):
    def train(net, batch):
        value = loss(net(batch["x"])).sum()
        if value.requires_grad:
            value.backward()

    assert set(states(observe(build, train, x=X).steps[0]).values()) == {state}


@pytest.mark.parametrize(
    ("divide", "scaled"), [(lambda loss: loss, False), (lambda loss: loss / 2, True), (lambda loss: 0.5 * loss, True)]
)
def test_losses_that_are_scaled(divide, scaled):
    def train(net, batch):
        for part in batch["x"].split(2):
            divide(net(part).mean()).backward()

    (step,) = observe(build, train, x=X).steps
    assert [(backward.scaled, backward.kept) for backward in step.backwards] == [
        (scaled, []),
        (scaled, ["weight", "bias"]),
    ]


def test_gradients_that_a_backward_pass_leaves_alone_are_not_kept_by_it():
    def train(net, batch):
        net[0](batch["x"]).mean().backward()
        net[1](batch["x"]).mean().backward()

    (step,) = observe(lambda: nn.Sequential(nn.Linear(3, 1), nn.Linear(3, 1)), train, x=X).steps
    assert [backward.kept for backward in step.backwards] == [[], []]


def test_gradients_of_autograd_grad():
    def train(net, batch):
        torch.autograd.grad(net(batch["x"]).sum(), net.parameters())

    (step,) = observe(build, train, x=X).steps
    assert step.backwards[0].source == line(train, "autograd.grad")


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_an_optimizer_is_known_by_the_line_that_made_it(kind):
    (step,) = observe(lambda: build(kind, lr=0.1), cleared_first, x=X).steps
    (optimizer,) = step.optimizers
    assert (optimizer.kind, optimizer.parameters, optimizer.stepped) == (kind.__name__, ["weight", "bias"], True)
    assert optimizer.source == line(build, "# made")


def test_an_optimizer_made_in_the_step():
    def train(net, batch):
        optimizer = torch.optim.SGD([net.weight])
        net(batch["x"]).mean().backward()
        optimizer.step()

    (step,) = observe(lambda: nn.Linear(3, 1), train, x=X).steps
    (optimizer,) = step.optimizers
    assert (optimizer.parameters, optimizer.source) == (["weight"], line(train, "optim.SGD"))


def test_an_optimizer_made_before():
    net = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters())

    def train(net, batch):
        net(batch["x"]).mean().backward()
        optimizer.step()

    (step,) = observe(lambda: net, train, x=X).steps
    assert [(each.source, each.stepped) for each in step.optimizers] == [("", True)]


def test_an_optimizer_that_computes_the_gradients_itself():
    def train(net, batch):
        def closure():
            net.optimizer.zero_grad()
            loss = net(batch["x"]).square().mean()
            loss.backward()
            return loss

        net.optimizer.step(closure)

    (step,) = observe(lambda: build(torch.optim.LBFGS, max_iter=1), train, x=X).steps
    assert states(step) == {"weight": "finite", "bias": "finite"}
    assert [backward.kept for backward in step.backwards] == [[]]


def test_an_optimizer_that_does_not_step():
    (step,) = observe(build, lambda net, batch: net(batch["x"]).mean().backward(), x=X).steps
    assert [optimizer.stepped for optimizer in step.optimizers] == [False]


def autocast(net, batch):
    with torch.autocast("cuda", torch.float16):
        return net(batch["x"].to("cuda:0")).float().mean()


def unscaled(net, batch):
    autocast(net, batch).backward()
    net.optimizer.step()


def scaled(net, batch):
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale(autocast(net, batch)).backward()
    scaler.step(net.optimizer)
    scaler.update()


@pytest.mark.parametrize(("train", "is_scaled"), [(unscaled, False), (scaled, True)])
def test_half_precision(train, is_scaled):
    (step,) = observe(lambda: build().to("cuda:0"), train, x=X).steps
    assert (step.half, step.loss_scaled) == (line(autocast, "torch.autocast"), is_scaled)
    assert step.failure is None
    assert step.copies[0].what == "to"
    assert len(step.copies) == 1
    assert not step.backwards[0].scaled
    assert step.optimizers[0].stepped


def test_a_scale_that_is_too_large_is_no_fault():
    def train(net, batch):
        scaler = torch.amp.GradScaler("cuda", init_scale=2.0**60)
        with torch.autocast("cuda", torch.float16):
            value = net(batch["x"].to("cuda:0")).mean()
        scaler.scale(value).backward()
        scaler.step(net.optimizer)

    (step,) = observe(lambda: build().to("cuda:0"), train, x=X).steps
    assert set(states(step).values()) == {"not_finite"}
    assert step.not_finite is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_parameters(dtype):
    def halved() -> nn.Module:
        return build().to(dtype)  # made half

    (step,) = observe(halved, lambda net, batch: net(batch["x"].to(dtype)).sum().backward(), x=X).steps
    assert step.half == (line(halved, "# made half") if dtype == torch.float16 else "")


def test_data_parallel_is_known_by_its_modules_names():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 1)

        def forward(self, x):
            return self.linear(x)

    def train(net, batch):
        net(batch["x"]).sum().backward()

    (step,) = observe(lambda: nn.DataParallel(Net().to("cuda:0")), train, x=X).steps
    assert step.distributed == "data_parallel"
    assert [(call.module, call.inputs[0].device) for call in step.calls] == [
        (MODEL, "cuda:0"),
        ("linear", "cuda:0"),
        (MODEL, "cuda:1"),
        ("linear", "cuda:1"),
    ]
    assert states(step) == {"linear.weight": "finite", "linear.bias": "finite"}
    assert step.copies == []


def test_the_calls_of_a_step():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.plain = nn.Linear(3, 3), [nn.Linear(3, 1)]

        def forward(self, x, shift):
            return self.plain[0](self.linear(x) + shift)

    def train(net, batch):
        net.eval()
        net(batch["x"], shift=batch["x"])
        net.train()

    seen = observe(Net, train, x=X)
    outer, linear, plain = seen.steps[0].calls
    assert (outer.module, outer.source) == (MODEL, line(train, "net(batch"))
    assert [tensor.origin for tensor in outer.inputs] == ["input x", "input x"]
    assert outer.outputs[0].origin == "output of plain[0]"
    assert (linear.module, linear.inputs[0].origin, linear.outputs[0].origin) == (
        "linear",
        "input x",
        "output of linear",
    )
    assert (plain.module, plain.source) == ("plain[0]", line(Net, "self.plain[0](self"))
    assert {module.name: module.training for module in seen.building.modules(seen.model)}[MODEL] is False


def program(steps: list) -> list[torch.Tensor]:
    """Train a net with random numbers, running statistics and momentum; what is left of it."""
    torch.manual_seed(0)
    with Building() as building:
        net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 2))
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    observer = Observer(net, building, GPUS)

    def train() -> None:
        optimizer.zero_grad()
        net(X + torch.randn(4, 3)).square().mean().backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()

    for observed in steps:
        if observed:
            with observer.step({"x": X}) as step:
                train()
            assert step.failure is None
        else:
            train()
    slots = [slot for state in optimizer.state.values() for slot in state.values()]
    return [*net.state_dict().values(), *(parameter.grad for parameter in net.parameters()), *slots, torch.randn(3)]


def test_an_observed_step_is_bitwise_the_programs_own():
    plain, observed = program([False] * 3), program([True, True, False])
    assert all(torch.equal(one, other) for one, other in zip(plain, observed, strict=True))


def test_an_observed_step_leaves_nothing_behind():
    owners = (nn.Module, torch.Tensor, torch.autograd, torch.optim.Optimizer, torch.amp.GradScaler, torch.autocast)
    owners += (nn.DataParallel, optimizers, nn.modules.module)

    def attributes():
        held = [{name: id(value) for name, value in vars(owner).items()} for owner in owners]
        return held, len(optimizers._global_optimizer_pre_hooks), torch.overrides._get_current_function_mode()

    program([False])
    before = attributes()
    program([True])
    observe(build, lambda net, batch: 1 / 0, x=X)
    assert attributes() == before
    assert torch.utils._python_dispatch._get_current_dispatch_mode_stack()[1:] == []
