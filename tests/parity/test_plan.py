"""Which trainings a set of cases needs: each its own and its baseline on one device, each training once."""

from pathlib import Path
from typing import Any

import pytest

from parity.config import cases, schema
from parity.config.devices import why_no_baseline
from parity.subjects import Plan, Task


def case(name: str, **changes: Any) -> schema.Case:
    return cases.resolve(name, changes)


def planned(folder: Path, *names: str, keep: Path | None = None, **changes: Any) -> Plan:
    return Plan([case(name, **changes) for name in names], folder, keep)


def tasks(plan: Plan) -> list[Task]:
    """All tasks in the order in which they begin: those of one case after those of another."""
    needed = {id(task): task for name in plan.own for task in reversed(plan.needs(name))}
    return list(needed.values())


# Baselines


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("simple_block/single", {}, "it runs on a single device itself"),
        ("simple_block/single@fit", {}, "it runs on a single device itself"),
        ("simple_block/all_reduce", {}, "DistributedSampler takes the samples in another order"),
        ("residual_block/ddp", {}, "batch norm"),
        ("residual_block/data_parallel", {}, "batch norm"),
        ("residual_block/ddp@local_buffers", {}, "batch norm"),
        ("residual_block/pipeline", {}, "batch norm"),
        ("residual_block/pipeline", {"accumulate": 1}, ""),
        ("residual_block/ddp", {"devices": 1}, ""),
        ("residual_block/send_recv", {}, ""),
        ("residual_block/branch_parallel", {}, ""),
        ("simple_block/ddp", {}, ""),
        ("simple_block/ddp@accumulate", {}, ""),
        ("transformer/tensor_parallel", {}, ""),
        ("transformer/send_recv", {}, ""),
        ("transformer/pipeline", {"accumulate": 1}, ""),
        ("transformer/pipeline", {}, "each replica and each micro-batch draws its own dropout masks"),
        ("transformer/ddp", {}, "each replica and each micro-batch draws its own dropout masks"),
        ("transformer/ddp", {"model": {"dropout": 0.0}}, ""),
    ],
)
def test_which_cases_have_a_baseline(name: str, changes: dict[str, Any], reason: str) -> None:
    said = why_no_baseline(case(name, **changes))
    assert said.startswith(reason) and bool(said) == bool(reason)


# What is run once


@pytest.mark.parametrize(
    ("names", "trainings"),
    [
        (["simple_block/single"], 1),
        (["simple_block/ddp"], 2),
        (["simple_block/ddp", "simple_block/single"], 2),
        (["simple_block/single", "simple_block/ddp"], 2),
        (["simple_block/ddp", "simple_block/round_robin", "simple_block/ddp@workers", "simple_block/pipeline"], 5),
        (["simple_block/ddp", "simple_block/ddp@adam", "simple_block/single@adam"], 4),
        (["simple_block/ddp@clip", "simple_block/single@clip"], 2),
        (["simple_block/ddp", "simple_block/ddp@uneven"], 4),
        (["simple_block/ddp", "linear_stack/ddp"], 4),
        (["simple_block/all_reduce", "residual_block/ddp"], 2),
        (["simple_block/ddp@accumulate", "simple_block/data_parallel@fit"], 3),
    ],
)
def test_cases_share_a_training(names: list[str], trainings: int, tmp_path: Path) -> None:
    plan = planned(tmp_path, *names)
    assert len(tasks(plan)) == len({task.folder for task in tasks(plan)}) == trainings
    assert {id(task) for name in names for task in plan.needs(name)} == {id(task) for task in tasks(plan)}


# What is kept


def made(task: Task) -> Path:
    task.folder.mkdir(parents=True)
    (task.folder / "trace").touch()
    return task.folder


def test_a_training_that_no_case_has_released_is_there(tmp_path: Path) -> None:
    task = planned(tmp_path, "simple_block/single").own["simple_block/single"]
    folder = made(task)
    task.release("another")
    assert folder.exists()
    task.release("simple_block/single")
    assert not folder.exists()


def test_without_keeping_all_folders_are_below_the_scratch_folder(tmp_path: Path) -> None:
    plan = Plan(cases.select([]), tmp_path, None)
    assert all(task.folder.is_relative_to(tmp_path) and not task.kept for task in tasks(plan))
    assert len({task.folder for task in tasks(plan)}) == len(tasks(plan))
