"""An interpreter of its own for a side: it has its own packages, and this project's, and no others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from parity.config import cases
from parity.core.errors import MissingError
from parity.runtime.backend import Backend, running
from parity.runtime.environment import OWN, environment
from parity.runtime.job import Job


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An environment without packages."""
    folder = tmp_path_factory.mktemp("empty")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return str(folder / "bin" / "python")


def test_it_finds_this_project_and_nothing_that_is_installed_beside_it(
    empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where this project is a package among others of its environment."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    site = tmp_path / "site-packages"
    site.mkdir()
    for name in (*OWN, "numpy"):
        (site / name).mkdir()
        (site / name / "__init__.py").touch()
    monkeypatch.setattr("parity.__file__", str(site / "parity" / "__init__.py"))
    other, same = (environment(tmp_path, python=python) for python in (empty, sys.executable))
    code = "import importlib.util as u; print([n for n in ('parity', 'torch_impl', 'numpy') if u.find_spec(n)])"
    found = [
        subprocess.run([empty, "-c", code], env=variables, capture_output=True, text=True).stdout
        for variables in (other, same)
    ]
    assert found == ["['parity', 'torch_impl']\n", "['parity', 'torch_impl', 'numpy']\n"]


@pytest.mark.parametrize(("side", "extra"), [("torch", "torch"), ("keras", "tensorflow")])
def test_an_environment_without_packages_is_told_in_one_line(side: str, extra: str, empty: str, tmp_path: Path) -> None:
    """What is missing first is a package that all of this project needs; the extra installs it as well."""
    job = Job(case=cases.resolve("simple_block/single"), runs=["low"], folder=str(tmp_path / "trace"))
    with running([Backend(side, empty, tmp_path)]) as (backend,):
        for _ in range(2):  # a process that has ended is not taken for one that is ready
            with pytest.raises(MissingError) as error:
                backend.do(job)
            said = str(error.value)
            assert said.startswith(f"{side}: ") and "\n" not in said
            assert f" is not installed for {empty}; in this project's folder: {empty} -m pip install " in said
            assert f"'.[{extra}]'" in said and f"--{side}-python=PYTHON" in said


def test_a_users_own_path_reaches_every_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/users/own")
    for python in ("", "/another/python"):
        assert environment(tmp_path, python=python)["PYTHONPATH"].split(os.pathsep)[1:] == ["/users/own"]
