"""A distributed training against the same one on a single device: what is the same is told from what is not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import Fault, Seen, by_hand, record, small_case

from parity.config import schema
from parity.core.arrays import Array
from parity.results import Against
from parity.trace import keys
from parity.trace.keys import in_words
from parity.trace.manifest import Trace
from parity.verdict.distributed import against_single

STEP = "step-000000"
SIGNS = np.where(np.arange(64) % 3, 1.0, -1.0)


def ddp(replicas: int, **changes: Any) -> schema.Case:
    return small_case(strategy="ddp", devices=replicas, **changes)


def times(factor: float, kind: str, name: str, replica: int | None = None, step: int | None = None) -> Fault:
    def fault(seen: Seen) -> Array:
        here = (seen.kind, seen.name) == (kind, name)
        here &= replica in (None, seen.replica) and step in (None, seen.step)
        return seen.value * seen.value.dtype.type(factor) if here else seen.value

    return fault


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


def test_it_needs_no_witness_where_rounding_does_little(tmp_path: Path) -> None:
    assert judged(tmp_path, ddp(2), witness=False).verdict == "match"


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
    found = judged(tmp_path, ddp(2), fault=times(2.0, kind, name, replica))
    assert found.verdict == "diverged"
    assert found.reason.startswith(f"{where}: ")


@pytest.mark.parametrize("step", [0, 1, 2])
def test_the_first_step_that_differs_is_named(step: int, tmp_path: Path) -> None:
    """The loss alone, which the training does not come back to."""
    found = judged(tmp_path, ddp(2), fault=times(2.0, "loss", "loss", step=step))
    assert found.verdict == "diverged"
    assert found.reason == f"step {step}: loss: 0.0 bits"


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


def test_another_training_in_later_steps_is_seen(tmp_path: Path) -> None:
    found = judged(tmp_path, ddp(2), fault=times(1.01, "gradient", "linear1.bias", step=1))
    assert found.verdict == "diverged" and found.reason.startswith("step 1: gradient of parameter `linear1.bias`: ")


def test_a_weight_decay_shows_in_the_updates(tmp_path: Path) -> None:
    slow = {"optimizer": {"learning_rate": 1e-6}}
    single = record(tmp_path / "single", "torch", small_case(**slow))
    for decay, verdict in ((0.0, "match"), (0.01, "diverged")):
        trace = record(tmp_path / str(decay), "torch", ddp(2, **slow), weight_decay=decay)
        found = against_single(single, trace, single)
        assert found.verdict == verdict
        assert found.reason.startswith("step 0: update of parameter ") == (verdict == "diverged")


# By hand: what is compared, and how the loss is put together


def traces(folder: Path, case: schema.Case, single: dict[str, Array], *replicas: dict[str, Array]) -> Against:
    """One step on a single device and in some replicas."""

    def runs(tensors: dict[str, Array]) -> dict[str, Any]:
        low = {key: a.astype(np.float32) if a.dtype == np.float64 else a for key, a in tensors.items()}
        return {"high": {STEP: tensors}, "low": {STEP: low}}

    one, *others = map(runs, replicas)
    alone = by_hand(folder / "single", runs(single), case=small_case())
    return against_single(alone, by_hand(folder / "trace", one, case=case, others=others), None)


def part(count: int, *losses: float, **tensors: Array) -> dict[str, Array]:
    """A replica's step: so many samples, and the loss of each micro-batch."""
    named = {keys.key("loss", "loss", repeat): np.asarray(loss) for repeat, loss in enumerate(losses)}
    return {"sample/indices": np.arange(count), **named, **tensors}


@pytest.mark.parametrize(
    ("parts", "loss"),
    [
        ([part(4, 1.0), part(4, 2.0)], 1.5),
        ([part(4, 1.0), part(3, 2.0)], 10 / 7),
        ([part(3, 1.0), part(2, 2.0), part(2, 4.0)], 15 / 7),
        ([part(5, 1.0, 2.0), part(4, 4.0, 8.0)], (3 * 1 + 2 * 2 + 2 * 4 + 2 * 8) / 9),
        ([part(7, 3.0)], 3.0),
        ([part(7, 3.0), part(6)], 3.0),  # nn.DataParallel: the loss of the whole batch, in replica 0
    ],
)
def test_the_loss_is_put_together_by_the_samples_of_its_parts(
    parts: list[dict[str, Array]], loss: float, tmp_path: Path
) -> None:
    case = ddp(len(parts))
    assert traces(tmp_path, case, part(7, loss), *parts).verdict == "match"
    plain = float(np.mean([a for each in parts for key, a in each.items() if key.startswith("loss/")]))
    for wrong in (loss + 1e-3, *([plain] if abs(plain - loss) > 1e-6 else [])):
        found = traces(tmp_path, case, part(7, wrong), *parts)
        assert (found.verdict, found.reason.rpartition(": ")[0]) == ("diverged", "step 0: loss")


def test_the_losses_of_a_sum_are_added_up(tmp_path: Path) -> None:
    case = ddp(2, loss={"reduction": "sum"})
    parts = [part(4, 1.0), part(3, 2.0)]
    assert traces(tmp_path, case, part(7, 3.0), *parts).verdict == "match"
    assert traces(tmp_path, case, part(7, 10 / 7), *parts).verdict == "diverged"


@pytest.mark.parametrize("key", ["gradient/w", "parameter/w", "buffer/w", "optimizer_state/w.momentum"])
def test_each_kind_is_compared(key: str, tmp_path: Path) -> None:
    single = part(7, 1.0, **{key: SIGNS})
    for factor, verdict in ((1.0, "match"), (1.01, "diverged")):
        own = part(7, 1.0, **{key: SIGNS * factor})
        found = traces(tmp_path, ddp(1), single, own)
        assert (found.verdict, found.compared) == (verdict, 2)
        assert factor == 1.0 or found.reason.startswith(f"step 0: {in_words(*keys.split(key))}: ")


@pytest.mark.parametrize("key", ["activation/a", "input/input", "gradient/w@local", "sample/more"])
def test_what_a_part_of_the_batch_changes_is_not_compared(key: str, tmp_path: Path) -> None:
    found = traces(tmp_path, ddp(1), part(7, 1.0, **{key: SIGNS}), part(7, 1.0, **{key: SIGNS * 2}))
    assert (found.verdict, found.compared) == ("match", 1)


def test_replica_0_stands_for_all(tmp_path: Path) -> None:
    """The replicas are compared with each other, and with the other framework's, in the case itself."""
    parts = [part(4, 1.0, **{"buffer/b": SIGNS * size}) for size in (1, 2)]
    assert traces(tmp_path, ddp(2), part(7, 1.0, **{"buffer/b": SIGNS}), *parts).verdict == "match"
    assert traces(tmp_path, ddp(2), part(7, 1.0, **{"buffer/b": SIGNS}), *reversed(parts)).verdict == "diverged"


@pytest.mark.parametrize(
    ("other", "said"),
    [({}, "only single has this tensor"), ({"gradient/w": SIGNS[:7]}, "single has the shape (64,), ddp (7,)")],
)
def test_a_tensor_that_cannot_be_compared_is_diverged(other: dict[str, Array], said: str, tmp_path: Path) -> None:
    found = traces(tmp_path, ddp(1), part(7, 1.0, **{"gradient/w": SIGNS}), part(7, 1.0, **other))
    assert (found.verdict, found.reason) == ("diverged", f"step 0: gradient of parameter `w`: {said}")


def test_the_stages_of_a_replica_are_put_together(tmp_path: Path) -> None:
    """The target and the loss are on the last rank, the parameters where their stage is."""
    single = part(7, 1.0, **{"gradient/a": SIGNS, "gradient/b": SIGNS * 2})
    stages = [part(7, **{"gradient/a": SIGNS}), part(7, 1.0, **{"gradient/b": SIGNS * 2})]
    runs = [{run: {STEP: each} for run in ("low", "high")} for each in stages]
    alone = by_hand(tmp_path / "single", {run: {STEP: single} for run in ("low", "high")})
    cut: Trace = by_hand(tmp_path / "cut", runs[0], case=ddp(2), others=runs[1:], replicas=[[0, 1]])
    found = against_single(alone, cut, None)
    assert (found.verdict, found.compared) == ("match", 3)
