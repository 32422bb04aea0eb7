"""A distributed training against the same one on a single device: what is the same is told from what is not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import Seen, by_hand, ddp, record, small_case
from verdicts import SIGNS, tensors, times

from parity.config import schema
from parity.core.arrays import Array
from parity.results import Against
from parity.trace import keys
from parity.verdict.distributed import against_single


def judged(folder: Path, case: schema.Case, witness: bool = True, **side: Any) -> Against:
    """The numpy network in replicas, against itself on a single device."""
    alone = small_case(data={"batch": case.data.batch}, precision=case.precision)
    single = record(folder / "single", "torch", alone)
    trace = record(folder / "trace", "torch", case, ("low", "high"), **side)
    return against_single(single, trace, single if witness else None)


# 4 parameters in the initial state and in steps 0 and 2, updates in these two; gradients and losses of three steps.
COMPARED = 3 * 4 + 2 * 4 + 3 * 4 + 3


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("batch", [8, 7])  # 7: uneven parts
@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_replicas_train_as_one_device_does(replicas: int, batch: int, precision: str, tmp_path: Path) -> None:
    found = judged(tmp_path, ddp(replicas, data={"batch": batch}, precision=precision))
    assert (found.verdict, found.reason, found.skipped) == ("match", "", "")
    assert found.compared == COMPARED
    assert found.worst_bits is None or found.worst_bits >= 20


@pytest.mark.parametrize(
    ("kind", "name", "replica", "where"),
    [
        ("gradient", "linear2.bias", None, "step 0: gradient of parameter `linear2.bias`"),
        ("gradient", "linear2.bias@local", 1, "step 0: gradient of parameter `linear2.bias`"),
        ("loss", "loss", 0, "step 0: loss"),
        ("loss", "loss", 1, "step 0: loss"),
        ("parameter", "linear1.weight", 0, "before the first step: parameter `linear1.weight`"),
    ],
)
def test_a_tensor_twice_as_large_is_named(
    kind: str, name: str, replica: int | None, where: str, tmp_path: Path
) -> None:
    found = judged(tmp_path, ddp(2), fault=times(2.0, kind, name, replica=replica))
    assert found.verdict == "diverged"
    assert found.reason.startswith(f"{where}: ")


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "match"), (1 + 1e-9, "subprecision"), (1.001, "diverged")])
def test_the_size_of_a_fault_tells(factor: float, verdict: str, tmp_path: Path) -> None:
    fault = times(factor, "gradient", "linear2.weight", step=0)
    assert judged(tmp_path, ddp(2), witness=False, fault=fault).verdict == verdict


def test_a_sum_for_a_mean_is_named(tmp_path: Path) -> None:
    """Every gradient as large as there are replicas: what a reduction that sums would leave."""

    def fault(seen: Seen) -> Array:
        reduced = seen.kind == "gradient" and not seen.name.endswith(keys.LOCAL) and seen.replica == 0
        return seen.value * seen.value.dtype.type(2) if reduced else seen.value

    found = judged(tmp_path, ddp(2), fault=fault)
    assert found.verdict == "diverged"
    assert found.reason == "step 0: gradient of parameter `linear2.weight`: 0.0 bits"
    assert found.worst_name is not None


# By hand: what is compared, and how the loss is put together


def traces(folder: Path, case: schema.Case, single: dict[str, Array], *replicas: dict[str, Array]) -> Against:
    """One step on a single device and in some replicas."""

    one, *others = map(tensors, replicas)
    alone = by_hand(folder / "single", tensors(single), case=small_case())
    return against_single(alone, by_hand(folder / "trace", one, case=case, others=others), None)


def part(count: int, *losses: float, **more: Array) -> dict[str, Array]:
    """A replica's step: so many samples, and the loss of each micro-batch."""
    named = {keys.key("loss", "loss", repeat): np.asarray(loss) for repeat, loss in enumerate(losses)}
    return {"sample/indices": np.arange(count), **named, **more}


def test_the_losses_of_a_sum_are_added_up(tmp_path: Path) -> None:
    case = ddp(2, loss={"reduction": "sum"})
    parts = [part(4, 1.0), part(3, 2.0)]
    assert traces(tmp_path, case, part(7, 3.0), *parts).verdict == "match"
    assert traces(tmp_path, case, part(7, 10 / 7), *parts).verdict == "diverged"


@pytest.mark.parametrize(
    ("other", "said"),
    [({}, "only single has this tensor"), ({"gradient/w": SIGNS[:7]}, "single has the shape (64,), ddp (7,)")],
)
def test_a_tensor_that_cannot_be_compared_is_diverged(other: dict[str, Array], said: str, tmp_path: Path) -> None:
    found = traces(tmp_path, ddp(1), part(7, 1.0, **{"gradient/w": SIGNS}), part(7, 1.0, **other))
    assert (found.verdict, found.reason) == ("diverged", f"step 0: gradient of parameter `w`: {said}")
