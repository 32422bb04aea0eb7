"""Whose a file is, wherever this project, the frameworks and the user's program lie."""

import json
import os
import sysconfig
from pathlib import Path

import msgspec
import numpy
import pytest

import parity
from parity.core import ownership
from parity.core.ownership import Homes

SITE = "/env/lib/python3.11/site-packages"
INSTALLED = Homes(
    own=[f"{SITE}/parity", f"{SITE}/torch_impl/instruments"],
    frameworks=["/src/pytorch/torch"],
    standard=["/usr/lib/python3.11"],
    programs=[f"{SITE}/theirs", f"{SITE}/alone.py"],
)


@pytest.mark.parametrize(
    ("file", "owner"),
    [
        (f"{SITE}/parity/doctor/drive.py", "own"),
        (f"{SITE}/torch_impl/instruments/training.py", "own"),
        ("/src/pytorch/torch/nn/functional.py", "installed"),
        (f"{SITE}/einops/einops.py", "installed"),
        ("/usr/lib/python3/dist-packages/yaml/__init__.py", "installed"),
        ("/usr/lib/python3.11/contextlib.py", "standard"),
        ("<frozen importlib._bootstrap>", "standard"),
        ("<string>", "standard"),
        ("/home/someone/train.py", "user"),
        (f"{SITE}/theirs/train.py", "user"),
        (f"{SITE}/alone.py", "user"),
        (f"{SITE}/theirs_too/train.py", "installed"),
        (f"{SITE}/theirs/.venv/lib/python3.11/site-packages/einops/einops.py", "installed"),
        ("/home/someone/parity/train.py", "user"),
    ],
)
def test_whose_a_file_is(file: str, owner: str) -> None:
    assert INSTALLED.owner(file) == owner


def test_this_process_knows_its_own_homes() -> None:
    assert ownership.owner(parity.__file__) == "own"
    assert ownership.owner(numpy.__file__) == "installed"
    assert ownership.owner(json.__file__) == "standard"
    assert ownership.owner(__file__) == "user"
    assert ownership.owner(str(Path(parity.__file__).parents[1] / "torch_impl" / "models" / "block.py")) == "user"
    assert sysconfig.get_path("stdlib") in ownership.here().standard
    assert msgspec.json.decode(msgspec.json.encode(ownership.here()), type=Homes) == ownership.here()


@pytest.mark.parametrize("package", ownership.BUILT_IN)
def test_all_but_what_teaches_is_this_project_s_own(package: str) -> None:
    folder = Path(parity.__file__).parents[1] / package
    parts = {part.name: part for part in folder.iterdir() if part.suffix == ".py" or (part / "__init__.py").exists()}
    owners = {name: ownership.owner(str(part / "x.py" if part.is_dir() else part)) for name, part in parts.items()}
    teaching = {"models", "strategies", "losses.py", "optimizers.py"}
    assert {name for name, owner in owners.items() if owner == "user"} == teaching
    assert {owner for name, owner in owners.items() if name not in teaching} == {"own"}


def test_the_code_of_models_is_the_users_and_that_of_libraries_but_not_a_frameworks() -> None:
    assert ownership.is_models(__file__) and ownership.is_models(msgspec.__file__)
    assert not any(map(ownership.is_models, (numpy.__file__, json.__file__, parity.__file__)))


@pytest.mark.parametrize(("file", "told"), [(f"{SITE}/einops/einops.py", "einops/einops.py"), ("/a/b.py", "/a/b.py")])
def test_the_file_of_a_package_is_told_from_its_folder_on(file: str, told: str) -> None:
    assert ownership.in_package(file) == told


def test_a_path_is_also_compared_resolved(tmp_path: Path) -> None:
    os.symlink(Path(parity.__file__).parent, tmp_path / "linked")
    assert ownership.owner(str(tmp_path / "linked" / "errors.py")) == "own"


def test_an_installed_package_that_a_flag_names_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site-packages"
    for name in ("named_by_a_flag", "by_nobody"):
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(ownership, "_programs", [])
    file = str(site / "named_by_a_flag" / "model.py")
    assert ownership.owner(file) == "installed"
    ownership.claim("named_by_a_flag.model")
    assert ownership.owner(file) == "user"
    assert ownership.owner(str(site / "by_nobody" / "model.py")) == "installed"


def test_a_framework_is_nobodys_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "_programs", [])
    ownership.claim("numpy.linalg")
    ownership.claim("no_such_module")
    assert ownership.owner(numpy.__file__) == "installed"
