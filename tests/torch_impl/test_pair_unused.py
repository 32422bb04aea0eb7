"""Which of torch's weights take part in nothing that is compared: only what is proven to."""

from pathlib import Path

import numpy as np
import pytest
import torch
from pair_runs import case, surveyed
from torch import nn
from torch.utils.checkpoint import checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True:UserWarning")
X = {"x": {"shape": [4, 3]}}
Y = {"y": {"torch": "y", "keras": "y"}}
UNUSED = {"head", "pooled", "normed", "shift"}


class Idle(nn.Module):
    """Layers that take part in `y`, each in another way, and four that do not."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.head, self.pooled, self.normed = (*(nn.Linear(3, 3) for _ in range(3)), nn.BatchNorm1d(3))
        self.detached, self.closed, self.trained, self.inferred = (nn.Linear(3, 3) for _ in range(4))
        self.hidden, self.shift = nn.Linear(3, 3), nn.Parameter(torch.tensor(1.0))
        self.statistics = nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.used(x) + self.detached(x).detach() + torch.relu(self.closed(x) - 100)
        y = y + (self.trained(x) if self.training else self.inferred(x))
        y = y + checkpoint(self.hidden, x, use_reentrant=True) + self.statistics(x)
        return {"y": y, "pooled": torch.tanh(self.pooled(x)), "normed": self.normed(x), "shift": self.shift}


class Whole(nn.Module):
    """A head that makes whole numbers, which have no gradient, and seldom change."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.head = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.used(x), (self.head(x) > 1e9).sum(-1)


class Rounded(nn.Module):
    """A head behind which everything is rounded away."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.head = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x) + torch.round(self.head(x).detach() / 1e9)


class Random(nn.Module):
    """A layer that is not called, beside noise that no two calls share."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.head = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x) + torch.from_numpy(np.random.normal(size=3)).to(x)


def unused(model: str, tmp_path: Path, **fields: object) -> list[str]:
    return surveyed(case(f"test_pair_unused:{model}", X, **fields), tmp_path).told.unused


def test_what_no_compared_output_depends_on(tmp_path):
    found = unused("Idle", tmp_path, outputs=Y)
    assert {name.partition(".")[0] for name in found} == UNUSED
    assert {name for name in found if name.startswith("normed")} == {
        f"normed.{role}" for role in ("weight", "bias", "running_mean", "running_var")
    }


def test_without_named_outputs_all_of_them_are_compared(tmp_path):
    assert {name.partition(".")[0] for name in unused("Idle", tmp_path)} == {"head"}


@pytest.mark.parametrize("model", ["Random", "Whole", "Rounded"])
def test_nothing_is_proven_of_what_a_single_call_does_not_tell(model, tmp_path):
    assert unused(model, tmp_path) == []
