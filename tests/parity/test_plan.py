"""Which trainings a set of cases needs: each its own and its baseline on one device, each training once."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from parity.config import cases, schema
from parity.config.devices import baseline, why_no_baseline
from parity.runtime.plan import Plan, Task


def case(name: str, **changes: Any) -> schema.Case:
    return cases.resolve(name, changes)


def planned(folder: Path, *names: str, keep: Path | None = None, **changes: Any) -> Plan:
    return Plan([case(name, **changes) for name in names], folder, keep)


def tasks(plan: Plan) -> list[Task]:
    """All tasks in the order in which they begin: those of one case after those of another."""
    needed = {id(task): task for number in range(len(plan.own)) for task in reversed(plan.needs(number))}
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


@pytest.mark.parametrize("name", [name for name in cases.names() if not why_no_baseline(cases.resolve(name))])
def test_a_baseline_is_the_same_mathematics_on_one_device(name: str) -> None:
    chosen = case(name, seed=3)
    single = baseline(chosen)
    assert (single.strategy, single.replicas, single.name) == ("single", 1, f"{name.partition('/')[0]}/single")
    spread = {"name", "strategy", "accumulate", "fit", "workers", "local_buffers", "distribute_dataset", "pipeline"}
    kept = set(schema.Case.__struct_fields__) - spread
    assert [field for field in kept if getattr(single, field) != getattr(chosen, field)] == []
    assert baseline(single) == single


def test_the_options_of_a_strategy_do_not_reach_its_baseline() -> None:
    plain = baseline(case("simple_block/ddp"))
    for option in ("local_buffers", "workers", "distribute_dataset"):
        assert baseline(case("simple_block/ddp", **{option: True})) == plain
    assert baseline(case("simple_block/pipeline@1f1b")) == baseline(case("simple_block/data_parallel@fit")) == plain


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
    assert {id(task) for n in range(len(names)) for task in plan.needs(n)} == {id(task) for task in tasks(plan)}


def test_a_chosen_case_is_the_baseline_of_another(tmp_path: Path) -> None:
    plan = planned(tmp_path, "simple_block/ddp", "simple_block/single@adam", "simple_block/single")
    assert plan.baselines[0] is plan.own[2]
    assert plan.baselines[1:] == [None, None]
    assert plan.own[2].users == {0, 2}
    assert plan.needs(0) == [plan.own[0], plan.own[2]] and plan.needs(2) == [plan.own[2]]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_cases_that_differ_in_their_name_alone_have_a_training_each(order: tuple[int, ...], tmp_path: Path) -> None:
    """And one of the two is the baseline of the third."""
    names = ["simple_block/single", "simple_block/single@fit", "simple_block/ddp"]
    plan = planned(tmp_path, *(names[n] for n in order), fit=False)
    one, other, spread = map(order.index, range(3))
    assert len(tasks(plan)) == len({task.folder for task in tasks(plan)}) == 3
    assert [task.case.name for task in plan.own] == [names[n] for n in order]
    assert (plan.baselines[one], plan.baselines[other]) == (None, None)
    assert plan.baselines[spread] in (plan.own[one], plan.own[other])
    users = [task.users for task in (plan.own[one], plan.own[other])]
    assert {frozenset(each) for each in users} in (
        {frozenset({one, spread}), frozenset({other})},
        {frozenset({one}), frozenset({other, spread})},
    )


def test_what_is_kept_has_both_of_two_equal_trainings(tmp_path: Path) -> None:
    names = "simple_block/single", "simple_block/single@fit", "simple_block/ddp"
    plan = planned(tmp_path / "scratch", *names, keep=tmp_path / "keep", fit=False)
    for task in tasks(plan):
        made(task)
    for number in range(3):
        for task in plan.needs(number):
            task.release(number)
    assert all((tmp_path / "keep" / name / "trace").exists() for name in names)


@pytest.mark.parametrize("changes", [{"seed": 1}, {"steps": 2}, {"devices": 3}, {"precision": "float16"}])
def test_a_baseline_is_trained_as_its_case_is(changes: dict[str, Any], tmp_path: Path) -> None:
    chosen = [case("simple_block/ddp", **changes), case("simple_block/ddp")]
    assert len(tasks(Plan(chosen, tmp_path, None))) == 4
    plan = Plan([chosen[0], case("simple_block/round_robin", **changes)], tmp_path, None)
    assert plan.baselines[0] is plan.baselines[1] is not None
    assert len(tasks(plan)) == 3
    plan = Plan([chosen[0], case("simple_block/single", **changes)], tmp_path, None)
    assert plan.baselines[0] is plan.own[1]
    assert len(tasks(plan)) == 2


@pytest.mark.parametrize("pattern", ["simple_block/*", "linear_stack/*", "*"])
def test_a_baseline_comes_before_its_first_user_and_no_earlier_than_needed(pattern: str, tmp_path: Path) -> None:
    chosen = list(reversed(cases.select([pattern])))
    plan = Plan(chosen, tmp_path, None)
    place = {id(task): number for number, task in enumerate(tasks(plan))}
    pairs = [(own, single) for own, single in zip(plan.own, plan.baselines, strict=True) if single]
    assert pairs
    assert all(place[id(single)] < place[id(own)] for own, single in pairs if min(own.users) == min(single.users))
    firsts = [min(task.users) for task in tasks(plan)]
    assert firsts == sorted(firsts)  # when the tasks up to a case's own are done, the case can be judged


# What is kept


def made(task: Task) -> Path:
    task.folder.mkdir(parents=True)
    (task.folder / "trace").touch()
    return task.folder


def test_a_training_is_deleted_when_nobody_waits_for_it_any_more(tmp_path: Path) -> None:
    plan = planned(tmp_path, "simple_block/ddp", "simple_block/round_robin")
    folders = {id(task): made(task) for task in tasks(plan)}
    left = []
    for number in (1, 0):
        for task in plan.needs(number):
            task.release(number)
        left.append([folders[id(task)].exists() for task in (*plan.own, plan.baselines[0]) if task])
    assert left == [[True, False, True], [False, False, False]]


def test_a_training_that_no_case_has_released_is_there(tmp_path: Path) -> None:
    task = planned(tmp_path, "simple_block/single").own[0]
    folder = made(task)
    task.release(7)
    assert folder.exists()
    task.release(0)
    assert not folder.exists()


def test_what_is_to_be_kept_is_kept_and_a_baseline_of_nobody_s_choice_is_not(tmp_path: Path) -> None:
    keep = tmp_path / "keep"
    plan = planned(tmp_path / "scratch", "simple_block/ddp", "two_linear/ddp", "two_linear/single", keep=keep)
    folders = [made(task) for task in tasks(plan)]
    for number in range(3):
        for task in plan.needs(number):
            task.release(number)
    kept = {folder for folder in folders if folder.exists()}
    assert kept == {keep / "simple_block/ddp", keep / "two_linear/ddp", keep / "two_linear/single"}
    assert len(folders) == 4


def test_without_keeping_all_folders_are_below_the_scratch_folder(tmp_path: Path) -> None:
    plan = Plan(cases.select([]), tmp_path, None)
    assert all(task.folder.is_relative_to(tmp_path) and not task.kept for task in tasks(plan))
    assert len({task.folder for task in tasks(plan)}) == len(tasks(plan))
