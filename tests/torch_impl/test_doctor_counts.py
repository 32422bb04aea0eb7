"""What a line of a loop does several times in a step is one finding, which says how often."""

import pytest
import torch
from observed import GPUS, line, observe
from torch import nn
from torch.nn import functional

from parity.doctor import rules
from parity.doctor.evidence import Evidence
from parity.doctor.finding import Finding

pytestmark = pytest.mark.usefixtures("gpus")

X = torch.arange(12.0).reshape(4, 3)


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def by_hand(times):
    def train(model, batch):
        for _ in range(times):
            model(batch["x"])[:, :1] - batch["x"][:, 0]  # fault

    return train


def activated(times):
    def train(model, batch):
        for _ in range(times):
            functional.cross_entropy(model(batch["x"]).softmax(-1), torch.tensor([0, 1, 2, 0]))  # fault

    return train


def clipped(times):
    def train(model, batch):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for block in model.blocks[:times]:
            nn.utils.clip_grad_norm_(block.parameters(), 1.0)  # fault
        model(batch["x"]).sum().backward()
        optimizer.step()

    return train


def found(build, train, name: str) -> Finding:
    """The only finding of that id."""
    seen = observe(build, train, 2, x=X)
    evidence = Evidence(side="torch", devices=GPUS, own_step=True, steps=seen.steps)
    (finding,) = [finding for finding in rules.findings([evidence]) if finding.id == name]
    return finding


FAULTS = {
    "shape.loss_broadcast": by_hand,
    "loss.softmax_twice": activated,
    "learning.clipped_in_vain": clipped,
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_finding_says_how_often_a_line_did_it(name):
    often = found(Blocks, FAULTS[name](3), name)
    assert often.source == line(FAULTS[name], "# fault")
    assert "3 times a step" in often.message
    once = found(Blocks, FAULTS[name](1), name)
    assert "times a step" not in once.message and "This happens" not in once.message


def test_a_batch_that_is_sent_in_a_loop_is_told_input_by_input():
    def train(model, batch):
        for _ in range(3):
            for name in ("x", "y"):
                batch[name].to("cuda:0")  # fault

    seen = observe(Blocks, train, 1, x=X, y=X)
    evidence = Evidence(side="torch", devices=GPUS, own_step=True, steps=seen.steps)
    (finding,) = [finding for finding in rules.findings([evidence]) if finding.id == "input.copied_again"]
    for name in ("x", "y"):
        assert (
            f"The input {name} is copied to cuda:0 3 times a step (144 bytes), 2 of them needless." in finding.message
        )
