"""A user's functions by name: two programs in one process do not see each other's modules."""

import sys
from pathlib import Path

import pytest

from parity.core.errors import UsageError
from parity.core.program import load, load_loss


@pytest.fixture(autouse=True)
def _restored(monkeypatch):
    """What the tests import is forgotten behind them."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def program(folder: Path, value: int) -> list[str]:
    """A package of two modules that both programs call alike."""
    (folder / "twin_pkg").mkdir(parents=True)
    (folder / "twin_pkg" / "__init__.py").touch()
    (folder / "twin_pkg" / "value.py").write_text(f"VALUE = {value}\n")
    (folder / "twin_pkg" / "model.py").write_text("from twin_pkg.value import VALUE\ndef build():\n    return VALUE\n")
    return [str(folder)]


def test_modules_of_one_name_in_two_folders_are_two(tmp_path: Path) -> None:
    one, other = program(tmp_path / "one", 1), program(tmp_path / "other", 2)
    assert [load("--torch", "twin_pkg.model:build", search=search)() for search in (one, other, one)] == [1, 2, 1]


def test_an_earlier_program_s_folder_is_not_looked_in(tmp_path: Path) -> None:
    load("--torch", "twin_pkg.model:build", search=program(tmp_path / "one", 1))
    (tmp_path / "none").mkdir()
    with pytest.raises(UsageError, match="there is no module 'late_pkg'"):
        program_later = tmp_path / "one" / "late_pkg.py"
        program_later.write_text("def build():\n    pass\n")
        load("--torch", "late_pkg:build", search=[str(tmp_path / "none")])


def test_a_file_named_as_an_installed_package_takes_nothing_away(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("def build():\n    pass\n")
    (tmp_path / "mine.py").write_text("def build():\n    return 3\n")
    before = sys.modules["numpy"]
    assert load("--torch", "mine:build", search=[str(tmp_path)])() == 3
    assert sys.modules["numpy"] is before


def test_a_loss_may_take_the_outputs_alone(tmp_path: Path) -> None:
    functions = (
        "def both(outputs, target): return outputs + target\ndef alone(outputs): return outputs\ndef none(): pass\n"
    )
    (tmp_path / "twin_losses.py").write_text(functions)
    found = [load_loss("--loss", f"twin_losses:{name}", "target", search=[str(tmp_path)]) for name in ("both", "alone")]
    assert [loss(2, 3) for loss in found] == [5, 2]
    with pytest.raises(UsageError, match=r"is called as none\(outputs, target\)"):
        load_loss("--loss", "twin_losses:none", "target", search=[str(tmp_path)])
