"""What pyproject.toml installs: traces are recorded where one framework is, and compared where none is.

Each environment has what its extras ask for and no more, so that a package that is imported and not asked for is seen.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from environments import NAME, PROJECT, ROOT, make, required
from slow import WAIT, sampled
from synthetic import record

FRAMEWORKS = {"torch": "torch", "keras": "tensorflow"}  # of each backend, the extra
BLOCK = "--case=simple_block/single"
PAIR = ["--torch=a:build", "--keras=b:build", "--input=x=float32[2,3]"]
Ended = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Makes environments, each once: `python("torch")` has this project's requirements with that extra."""
    made: dict[tuple[str, ...], str] = {}

    def python(*extras: str, more: str = "") -> str:
        if (*extras, more) not in made:
            wanted = f"{NAME}[{','.join(extras)}]" if extras else NAME
            made[*extras, more] = make(tmp_path_factory.mktemp("environment") / "it", wanted, *filter(None, [more]))
        return made[*extras, more]

    return python


def run(python: str, *arguments: object, folder: Path = ROOT) -> Ended:
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [python, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=WAIT)


def frameworks(python: str) -> list[str]:
    """Return those that an interpreter finds."""
    code = "import importlib.util as u; print(*[n for n in ('torch', 'tensorflow', 'keras') if u.find_spec(n)])"
    return run(python, "-c", code).stdout.split()


@pytest.mark.slow
def test_each_extra_brings_its_framework(python: Callable[..., str]) -> None:
    assert frameworks(python()) == []
    assert frameworks(python("torch")) == ["torch"]
    assert frameworks(python("tensorflow")) == ["tensorflow", "keras"]


def test_extras_hold_each_other() -> None:
    """The tests want both frameworks, and who develops wants the tests."""
    names = [required(f"{NAME}[{extra}]") for extra in ("all", "test")]
    assert {"torch", "tensorflow", "keras"} <= names[0] < names[1]
    assert names[0] == required(f"{NAME}[torch,tensorflow]")
    assert {"pytest", "hypothesis"} <= names[1]
    assert f"{NAME}[test]" in PROJECT["optional-dependencies"]["dev"]


@pytest.mark.slow
def test_without_a_framework_every_module_can_be_imported(python: Callable[..., str]) -> None:
    """All but the pytest plugin, and the random cases of the self-test."""
    code = (
        "import importlib, pkgutil, parity\n"
        "for module in pkgutil.walk_packages(parity.__path__, 'parity.'):\n"
        "    try: importlib.import_module(module.name)\n"
        "    except ModuleNotFoundError as error: print(module.name, error.name)\n"
    )
    ended = run(python(), "-c", code)
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == [
        "parity.pytest_plugin pytest",
        "parity.selftest.clean hypothesis",
    ]


@pytest.mark.parametrize(
    "command", [["-m", "parity.compare"], pytest.param(["-m", "parity", "compare"], marks=pytest.mark.slow)]
)
def test_traces_are_compared_without_a_framework(
    command: list[str], python: Callable[..., str], tmp_path: Path
) -> None:
    record(tmp_path / "torch", "torch")
    record(tmp_path / "keras", "keras")
    ended = run(python(), *command, tmp_path / "torch", tmp_path / "keras")
    assert ended.returncode == 0, ended.stderr
    assert "1 match" in ended.stdout


@pytest.mark.parametrize("planted", sampled(["", "torch", "keras"], "", "keras"))
def test_comparing_traces_imports_no_framework_that_is_there(planted: str, tmp_path: Path) -> None:
    """Both are installed. A planted one is seen."""
    for side in FRAMEWORKS:
        record(tmp_path / side, side)
    code = f"""
import atexit, sys
from parity.__main__ import main
names = ("torch", "tensorflow", "keras", "torch_impl", "keras_impl")
atexit.register(lambda: print("imported", *(name for name in names if name in sys.modules), file=sys.stderr))
sys.modules[{planted!r} or "none"] = sys
main()
"""
    ended = run(sys.executable, "-c", code, "compare", tmp_path / "torch", tmp_path / "keras")
    assert (ended.returncode, ended.stderr.split()) == (0, ["imported", *filter(None, [planted])])


@pytest.mark.slow
def test_each_side_is_recorded_where_its_framework_is_the_only_one(python: Callable[..., str], tmp_path: Path) -> None:
    for side, extra in FRAMEWORKS.items():
        ended = run(python(extra), "-m", "parity.record", f"--backend={side}", BLOCK, f"--out={tmp_path / side}")
        assert ended.returncode == 0, ended.stdout + ended.stderr
    ended = run(python(), "-m", "parity.compare", tmp_path / "torch", tmp_path / "keras")
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.slow
def test_another_interpreter_may_have_the_framework(python: Callable[..., str], tmp_path: Path) -> None:
    flags = ["--backend=torch", BLOCK, f"--out={tmp_path}"]
    ended = run(python(), "-m", "parity.record", *flags, f"--torch-python={python('torch')}")
    assert ended.returncode == 0, ended.stdout + ended.stderr


def said(python: str, side: str) -> str:
    """Return what is said where the framework of a side is missing from an interpreter."""
    return (
        f"{side}: {side} is not installed for {python}; in this project's folder: {python} -m pip install "
        f"-c constraints.txt '.[{FRAMEWORKS[side]}]' ('.[all]' for both frameworks); the commands also "
        f"take another interpreter: --{side}-python=PYTHON\n"
    )


COMMANDS = {
    "compare": [BLOCK, "--case=two_linear/*"],
    "compare a pair": PAIR,
    "compare golden": ["--golden=golden", "--update-golden", BLOCK],
    "record": ["--backend=keras", "--out=out", BLOCK, "--case=two_linear/single"],
    "record a pair": ["--backend=torch", "--out=out", "--pair=pair.toml"],
    "bench": [BLOCK],
    "doctor": ["--keras=a:build", "--input=x=float32[2,3]"],
    "selftest": ["--fault=keras:adam*", "--clean=0"],
}


@pytest.mark.slow
@pytest.mark.parametrize("what", COMMANDS)
def test_a_missing_framework_is_one_line_that_names_the_extra(
    what: str, python: Callable[..., str], tmp_path: Path
) -> None:
    """Once, however many cases there are."""
    (tmp_path / "pair.toml").write_text('[pair]\nname = "it"\ntorch = "a:b"\nkeras = "c:d"\n[inputs.x]\nshape = [2]\n')
    name = what.split()[0]
    ended = run(python(), "-m", f"parity.{name}", *COMMANDS[what], folder=tmp_path)
    assert (ended.returncode, ended.stdout) == (3, "")
    assert ended.stderr in [f"parity.{name}: {said(python(), side)}" for side in FRAMEWORKS]


@pytest.mark.slow
def test_of_two_sides_the_doctor_examines_the_one_that_can_be_run(python: Callable[..., str]) -> None:
    ended = run(python("torch"), "-m", "parity.doctor", BLOCK)
    assert ended.returncode == 3 and ended.stdout.startswith("torch simple_block/single, ")
    assert ended.stderr == f"parity.doctor: {said(python('torch'), 'keras')}"


@pytest.mark.slow
@pytest.mark.parametrize("side", FRAMEWORKS)
def test_by_hand_a_missing_framework_is_one_line_too(side: str, python: Callable[..., str], tmp_path: Path) -> None:
    ended = run(python(), "-m", f"{side}_impl", BLOCK, "--out=out", folder=tmp_path)
    assert (ended.returncode, ended.stdout) == (3, "")
    assert ended.stderr == f"{side}_impl: {said(python(), side).removeprefix(f'{side}: ')}"


@pytest.mark.slow
def test_the_report_says_it_too(python: Callable[..., str], tmp_path: Path) -> None:
    ended = run(python("torch"), "-m", "parity.compare", BLOCK, "--json=-", folder=tmp_path)
    assert ended.returncode == 3
    assert re.search(r'"error": *"keras: keras is not installed', ended.stdout)


@pytest.mark.slow
def test_asserts_and_plugin_say_it_in_one_line(python: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        'import parity as package\nGIVEN = dict(torch="a:b", keras="c:d", inputs=["x=float32[2]"])\n'
        "def test_fixture(parity): parity.assert_match(**GIVEN)\n"
        "def test_function(): package.assert_match(**GIVEN)\n"
    )
    interpreter = python(more="pytest")
    flags = ["-p", "parity.pytest_plugin", "-p", "no:cacheprovider", "-rN"]
    ended = run(interpreter, "-m", "pytest", *flags, "test_it.py", folder=tmp_path)
    lines = ended.stdout.splitlines()
    sides = [said(interpreter, side).rstrip() for side in FRAMEWORKS]
    assert "2 failed" in lines[-1] and "torch not installed, tensorflow not installed" in ended.stdout
    assert sum(line in sides for line in lines) == 1, ended.stdout  # the fixture: without a traceback
    assert sum(line.partition("MissingError: ")[2] in sides for line in lines) == 1


def test_the_script_is_the_module() -> None:
    module, _, name = PROJECT["scripts"]["parity"].partition(":")
    code = f"import {module} as it; it.{name}()"
    ended = [run(sys.executable, *how, "--help") for how in (["-c", code], ["-m", "parity"])]
    assert ended[0].returncode == 0 and ended[0].stdout == ended[1].stdout != ""


@pytest.mark.slow
@pytest.mark.parametrize("side", FRAMEWORKS)
def test_a_certificate_needs_one_framework_at_a_time(side: str, python: Callable[..., str], tmp_path: Path) -> None:
    (other,) = FRAMEWORKS.keys() - {side}
    file = tmp_path / "block.parity"
    made = run(python(FRAMEWORKS[side]), "-m", "parity.certify", f"--backend={side}", BLOCK, f"--out={file}")
    assert made.returncode == 0, made.stdout + made.stderr
    ended = run(python(FRAMEWORKS[other]), "-m", "parity.compare", f"--certificate={file}")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 match" in ended.stdout
