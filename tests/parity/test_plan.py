"""Where the trainings that a set of cases needs are kept, and how long."""

from pathlib import Path

from parity.config import cases
from parity.subjects import Plan


def test_a_training_that_no_case_has_released_is_there(tmp_path: Path) -> None:
    task = Plan([cases.resolve("simple_block/single")], tmp_path, None).own["simple_block/single"]
    task.folder.mkdir(parents=True)
    (task.folder / "trace").touch()
    task.release("another")
    assert task.folder.exists()
    task.release("simple_block/single")
    assert not task.folder.exists()


def test_without_keeping_all_folders_are_below_the_scratch_folder(tmp_path: Path) -> None:
    plan = Plan(cases.select([]), tmp_path, None)
    tasks = list({id(task): task for name in plan.own for task in plan.needs(name)}.values())
    assert all(task.folder.is_relative_to(tmp_path) and not task.kept for task in tasks)
    assert len({task.folder for task in tasks}) == len(tasks)
