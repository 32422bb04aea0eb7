"""What is seen of a program's ops: copies, broadcasts, losses, cuts, changes in place, NaN, the op that fails."""

import pytest
import torch
from observed import line, observe, step
from torch import nn

from parity.trace.keys import MODEL

pytestmark = pytest.mark.usefixtures("gpus")

X = torch.arange(12.0).reshape(4, 3)


def constant(x):
    return x.to("cuda:0") + torch.ones(3).to("cuda:0")


def twice(x):
    return [x.to("cuda:0") for _ in range(2)]


def parts(x):
    return [part.to("cuda:0") for part in x.split(2)]


READS = {
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x.sum()),
    "if": lambda x: 1 if (x > 0).all() else 0,
    "equal": lambda x: torch.equal(x, x),
    "text": lambda x: str(x),
    "mask": lambda x: x[x > 3],
    "nonzero": lambda x: torch.nonzero(x),
    "where": lambda x: torch.where(x > 3),
    "put by mask": lambda x: x.__setitem__(x > 3, x[0, :1]),
}
KINDS = ["item", "item", "bool", "bool", "print", *["boolean_index"] * 4]


@pytest.mark.parametrize(("name", "what"), list(zip(READS, KINDS, strict=True)))
def test_reading_a_gpu_waits(name, what):
    (_, copy) = step(lambda x: READS[name](x.to("cuda:1")), x=X).copies
    assert (copy.what, copy.source, copy.count) == (what, "cuda:1", 1)
    assert copy.place.source.startswith("tests/torch_impl/test_doctor_ops.py:")


@pytest.mark.parametrize("name", READS)
def test_reading_the_host_does_not(name):
    assert step(READS[name], x=X).copies == []


@pytest.mark.parametrize(
    "read", [lambda x: x[:2], lambda x: x[torch.tensor([0, 1])], lambda x: torch.where(x > 3, x, 0)]
)
def test_indexing_by_numbers_does_not_wait(read):
    assert [copy.what for copy in step(lambda x: read(x.to("cuda:0")), x=X).copies] == ["to"]


@pytest.mark.parametrize(("function", "again"), [(twice, 1), (parts, 0)])
def test_what_is_copied_again(function, again):
    (copy,) = step(function, x=X).copies
    assert (copy.count, copy.again, copy.place.source) == (2, again, line(function, "return"))


def test_a_tensor_of_the_programs_own_is_copied_again_in_the_next_step():
    mine = torch.ones(3)
    (copy,) = step(lambda x: mine.to("cuda:0"), x=X).copies
    assert (copy.again, copy.tensor.origin) == (1, "")


def test_what_a_library_waits_for_is_not_the_programs():
    parameter = nn.Parameter(torch.ones(3, device="cuda:0"))

    def clip(x):
        parameter.grad = torch.ones(3, device="cuda:0")
        nn.utils.clip_grad_norm_([parameter], 1.0, error_if_nonfinite=True)

    assert step(clip, x=X).copies == []


def test_a_module_that_is_moved_in_the_step():
    net = nn.Linear(3, 3)
    seen = observe(lambda: net, lambda net, batch: net.to("cuda:0").to("cuda:1"), x=X)
    copies = [(copy.tensor.origin, copy.target, copy.count) for copy in seen.steps[0].copies]
    names = ("parameter weight", "parameter bias")
    assert copies == [(name, device, 1) for device in ("cuda:0", "cuda:1") for name in names]


@pytest.mark.parametrize(
    ("make", "origin"),
    [
        (lambda x: x[:2].reshape(-1), "input x"),
        (lambda x: x.T.detach(), "input x"),
        (lambda x: x + 1, ""),
        (lambda x: torch.ones(3) * 2, "constant"),
    ],
)
def test_origins(make, origin):
    (copy,) = step(lambda x: make(x).to("cuda:0"), x=X).copies
    assert copy.tensor.origin == origin


def without_graph(net, x):
    with torch.no_grad():
        return net(x)


CUTS = {
    "detach": lambda net, x: net(x).detach(),
    "data": lambda net, x: net(x).data,
    "no_grad": without_graph,
    "": lambda net, x: net(x.detach()),
}


@pytest.mark.parametrize("what", CUTS)
def test_cuts(what):
    train = CUTS[what]
    seen = observe(lambda: nn.Linear(3, 3), lambda net, batch: train(net, batch["x"]), x=X).steps[0].cuts
    assert [cut.what for cut in seen] == ([what] if what else [])
    assert all(cut.place.source == line(train, "net(x)") for cut in seen)


def test_a_checkpoint_is_no_cut():
    def train(net, batch):
        x = batch["x"].requires_grad_()
        torch.utils.checkpoint.checkpoint(net, x, use_reentrant=True).sum().backward()

    (seen,) = observe(lambda: nn.Linear(3, 3), train, x=X).steps
    assert seen.cuts == []
    assert [gradient.state for gradient in seen.gradients] == ["finite", "finite"]
    assert len(seen.backwards) == 1


class Deep(nn.Module):
    def __init__(self, inside=lambda x: x):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.second = nn.Linear(3, 3)
        self.inside = inside

    def forward(self, x):
        return self.second(self.inside(self.first(x)))


def test_a_failure_that_is_no_ops():
    def inside(x):
        raise KeyError("nothing")

    seen = observe(lambda: Deep(inside), lambda net, batch: net(batch["x"]), x=X).steps[0].failure
    assert (seen.exception, seen.operation, seen.place.module) == ("KeyError", "", MODEL)
    assert seen.place.source == line(inside, "raise")


def test_infinities_on_purpose_are_none():
    def mask(x):
        hidden = torch.full((3,), 0.0).index_fill(0, torch.tensor([1]), -torch.inf)
        return (x + hidden).softmax(-1)

    (seen,) = observe(lambda: Deep(mask), lambda net, batch: net(batch["x"]).sum().backward(), x=X).steps
    assert seen.not_finite is None
