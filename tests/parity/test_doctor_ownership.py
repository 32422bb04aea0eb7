"""Whose a file is, wherever this project, the frameworks and the user's program lie."""

import json
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


def test_the_code_of_models_is_the_users_and_that_of_libraries_but_not_a_frameworks() -> None:
    assert ownership.is_models(__file__) and ownership.is_models(msgspec.__file__)
    assert not any(map(ownership.is_models, (numpy.__file__, json.__file__, parity.__file__)))


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
