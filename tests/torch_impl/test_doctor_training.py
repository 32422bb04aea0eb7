"""What is seen of the training in a step: backward passes, gradients, optimizers, float16."""

import pytest
import torch
from observed import GPUS, line, observe
from torch import nn
from torch.optim import optimizer as optimizers

from torch_impl.doctor.observer import Observer
from torch_impl.instruments.build import Building

pytestmark = pytest.mark.usefixtures("gpus")

X = torch.arange(12.0).reshape(4, 3)


def build(kind: type[torch.optim.Optimizer] = torch.optim.SGD, **settings) -> nn.Module:
    net = nn.Linear(3, 1)
    net.optimizer = kind(net.parameters(), **settings)  # made
    return net


def states(step) -> dict[str, str]:
    return {gradient.parameter: gradient.state for gradient in step.gradients}


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
