"""python -m parity.bisect: releases of a small package, of which a later one has another epsilon."""

import contextlib
import itertools
import json
import os
import signal
import zipfile
from pathlib import Path

import pytest
from processes import Ended, Program, started
from slow import WAIT

from parity.bisect import first_that_differs, main
from parity.core.errors import UsageError
from parity.runtime.environment import Releases

ROOT = Path(__file__).parents[2]
PACKAGE = "epsilons"
RELEASES = {
    "1.0.0": "EPSILON = 1e-5",
    "1.1.0": "EPSILON = 1e-5\nFURTHER = 1",
    "1.1.1": "import a_package_that_nobody_has",
    "1.2.0": "EPSILON = 1e-3",
    "1.10.0": "EPSILON = 1e-3\nFURTHER = 2",
    "2.0.0rc1": "EPSILON = 1",
}
INSTALLED = "1.10.0"
FILES = {
    "torch_norm.py": "import epsilons\nfrom torch import nn\n\n\ndef build():\n"
    "    return nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32, eps=epsilons.EPSILON), nn.Linear(32, 5))\n",
    "keras_norm.py": "import epsilons\nimport keras\n\n\ndef build():\n    layers = keras.layers\n"
    "    norm = layers.LayerNormalization(epsilon=epsilons.EPSILON)\n"
    "    return keras.Sequential([keras.Input((16,)), layers.Dense(32), norm, layers.Dense(5)])\n",
    "norm.toml": '[pair]\ntorch = "torch_norm:build"\nkeras = "keras_norm:build"\n[inputs.x]\nshape = [8, 16]\n',
    "half.toml": '[pair]\ntorch = "torch_norm:build"\n[inputs.x]\nshape = [8, 16]\n',
    "wrong.toml": '[pair]\ntorch = "torch_norm:build"\nkeras = "keras_norm:build"\n[inputs.x]\nshap = [8, 16]\n',
}


def wheel(folder: Path, version: str, code: str) -> Path:
    """A wheel of one module."""
    info = f"{PACKAGE}-{version}.dist-info"
    texts = {
        f"{PACKAGE}.py": f"{code}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    path = folder / f"{PACKAGE}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        for name, text in texts.items():
            file.writestr(name, text)
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels, of which one is installed, the pairs, and a cache."""
    folder = tmp_path_factory.mktemp("bisect")
    for name in ("wheels", "installed", "cache"):
        (folder / name).mkdir()
    wheels = {version: wheel(folder / "wheels", version, code) for version, code in RELEASES.items()}
    with zipfile.ZipFile(wheels[INSTALLED]) as file:
        file.extractall(folder / "installed")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


def variables(home: Path) -> dict[str, str]:
    """Those of pip lead to the wheels alone."""
    pip = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(home / "wheels"), "PIP_CONFIG_FILE": os.devnull}
    return {**pip, **settings, "PYTHONPATH": os.pathsep.join([str(ROOT), str(home / "installed")])}


def flags(home: Path, *further: str, pair: str = "norm.toml", cache: str = "cache") -> list[str]:
    return [f"--package={PACKAGE}", f"--pair={home / pair}", f"--cache={home / cache}", *further]


def begun(home: Path, *further: str, **named: str) -> contextlib.AbstractContextManager[Program]:
    return started("-u", "-m", "parity.bisect", *flags(home, *further, **named), env=variables(home), cwd=home)


def run(home: Path, *further: str, **named: str) -> Ended:
    with begun(home, *further, **named) as program:
        out, err = program.communicate(timeout=WAIT)
    return Ended(program.returncode, out, err)


def tried(out: str) -> list[list[str]]:
    """The version and the verdict of each line, and whether it is an earlier search's."""
    rows = [line.split() for line in out.splitlines() if line.startswith(f"{PACKAGE} ")]
    return [[*row[1:3], "kept" if "(kept" in row else ""] for row in rows if row[4:5] == ["s"]]


@pytest.mark.slow
def test_it_names_the_version_the_place_and_the_cause(home: Path) -> None:
    """A version between that cannot be imported is skipped."""
    report = home / "report.json"
    ended = run(home, "--good=1.0.0", "--framework=torch", f"--json={report}", cache="torch")
    assert (ended.status, ended.err) == (1, "")
    assert tried(ended.out) == [
        ["1.10.0", "diverged", ""], ["1.1.1", "skipped", ""], ["1.2.0", "diverged", ""], ["1.1.0", "match", ""],
    ]  # fmt: skip
    assert "No module named 'a_package_that_nobody_has'" in ended.out
    said = f"{PACKAGE} 1.2.0 is the first that differs from 1.0.0, unless one that was skipped does: 1.1.1\n"
    assert said in ended.out
    assert (
        f"pair/norm@{PACKAGE}-1.0.0,{PACKAGE}-1.2.0: diverged\n  step 0: output of module `1` (LayerNorm)" in ended.out
    )
    assert "cause: layer_norm.epsilon at 1: reference 1e-05, candidate 0.001\n" in ended.out
    assert f"cause: sides.switch at 1: reference {PACKAGE}-1.0.0, candidate {PACKAGE}-1.2.0\n" in ended.out
    written = json.loads(report.read_text())
    assert [written[key] for key in ("package", "good", "bad", "first", "skipped")] == [
        PACKAGE, "1.0.0", INSTALLED, "1.2.0", ["1.1.1"],
    ]  # fmt: skip
    assert [each["version"] for each in written["tried"]] == ["1.10.0", "1.1.1", "1.2.0", "1.1.0"]
    (case,) = written["report"]["cases"]
    assert [cause["id"] for cause in case["causes"]] == ["layer_norm.epsilon", "sides.switch"]


@pytest.mark.slow
def test_what_a_version_changed_in_keras_is_told_by_what_pytorch_computes(home: Path) -> None:
    """A search that is interrupted leaves nothing half made, and goes on with what it has found."""
    with begun(home, "--good=1.0.0", "--bad=1.2.0", f"--json={home / 'stopped.json'}", cache="keras") as program:
        assert program.stdout
        line = program.stdout.readline()
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=WAIT)
    assert line.startswith(f"{PACKAGE} 1.2.0      diverged")
    assert (program.returncode, out, err) == (130, "", "parity.bisect: interrupted\n")
    assert json.loads((home / "stopped.json").read_text())["report"]["error"] == "interrupted"
    assert list((home / "keras").rglob("installing-*")) == []
    ended = run(home, "--good=1.0.0", "--bad=1.2.0", cache="keras")
    assert ended.status == 1
    assert tried(ended.out) == [["1.2.0", "diverged", "kept"], ["1.1.1", "skipped", ""], ["1.1.0", "match", ""]]
    assert "  step 0: output of module `layer_normalization`\n" in ended.out
    assert "cause: layer_norm.epsilon at 1: reference 1e-05, candidate 0.001\n" in ended.out


@pytest.mark.slow
def test_versions_that_compute_the_same_are_no_failure(home: Path) -> None:
    ended = run(home, "--good=1.2.0", pair="half.toml", cache="same")
    assert (ended.status, tried(ended.out)) == (0, [[INSTALLED, "match", ""]])
    assert f"{PACKAGE} {INSTALLED} computes the same as 1.2.0\n" in ended.out
    ended = run(home, "--good=1.1.1", pair="half.toml", cache="same")
    assert ended.status == 3 and f"{PACKAGE} {INSTALLED} could not be compared with 1.1.1\n" in ended.out


WRONG = [
    (
        ["--good=1.0.5"],
        "--good=1.0.5: pip finds no such version of epsilons (did you mean '1.0.0'?); the latest are 1.0.0",
    ),
    (["--good=1.0.0", "--bad=2.0.0rc1"], "--bad=2.0.0rc1: pip finds no such version of epsilons"),
    (["--good=1.2.0", "--bad=1.2.0"], "expected a good version that is older than the bad; name two versions"),
    (["--good=1.10.0", "--bad=1.2.0"], "older than the bad; exchange the two: from 1.2.0 to 1.10.0 it changed too"),
    (["--good=1.0.0", "--package=epsilon"], "--package=epsilon: is not installed for "),
    (["--good=1.0.0", "--package=msgspec"], "pip index msgspec: No matching distribution found for msgspec"),
    (["--good=1.0.0", "--framework=keras", "--pair=half.toml"], "half.toml: Object missing required field `keras`"),
    (["--good=1.0.0", "--pair=wrong.toml"], "wrong.toml: [inputs.x]: Object contains unknown field `shap`"),
    (["--good=1.0.0", "--pair=none.toml"], "none.toml: cannot be read: No such file"),
    (["--good=1.0.0", "--cache=norm.toml"], "norm.toml: expected a folder with write permission"),
]


@pytest.mark.parametrize(("given", "said"), WRONG)
def test_what_is_wrong_is_one_line(
    given: list[str], said: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(home)
    monkeypatch.syspath_prepend(home / "installed")
    for name, value in variables(home).items():
        monkeypatch.setenv(name, value)
    pair = [] if any(flag.startswith("--pair") for flag in given) else ["--pair=norm.toml"]
    with pytest.raises(UsageError) as error:
        main([f"--package={PACKAGE}", "--cache=cache", *pair, *given])
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert capsys.readouterr().out == ""


def test_a_pair_and_a_package_are_needed(capsys: pytest.CaptureFixture[str]) -> None:
    for given in (["--good=1"], ["--good=1", "--package=a", "--pair=a.toml", "--pair=b.toml"]):
        with pytest.raises(SystemExit) as end:
            main(given)
        assert end.value.code == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "the following arguments are required: --package, --pair" in first
    assert "received 2 pairs, expected one" in second


def test_releases_are_in_their_order_and_installed_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1.10.0 is later than 1.2.0; the installed version is taken as it is; a release that is none leaves nothing."""
    monkeypatch.syspath_prepend(home / "installed")
    for name, value in variables(home).items():
        monkeypatch.setenv(name, value)
    releases = Releases(PACKAGE, home / "cache")
    assert releases.installed == INSTALLED
    assert releases.between("1.0.0", "1.10.0") == ["1.1.0", "1.1.1", "1.2.0", "1.10.0"]
    first, *others = releases.variables("1.1.0")["PYTHONPATH"].split(os.pathsep)
    assert (Path(first) / f"{PACKAGE}.py").read_text().startswith("EPSILON = 1e-5")
    assert others == releases.variables(INSTALLED)["PYTHONPATH"].split(os.pathsep)
    monkeypatch.setenv("PIP_FIND_LINKS", os.devnull)
    assert releases.variables("1.1.0")["PYTHONPATH"].startswith(first)
    with pytest.raises(
        UsageError, match=r"^pip install epsilons==1\.2\.0: No matching distribution found for epsilons==1\.2\.0"
    ):
        releases.variables("1.2.0")
    assert not list(releases.cache.glob("installing-*")) and not list(releases.cache.glob(f"{PACKAGE}-1.2.0"))


@pytest.mark.parametrize("number", range(1, 7))
def test_the_search_finds_the_first_among_those_that_can_be_compared(number: int) -> None:
    """Of every first, and of all that may be skipped; no version is asked twice, and without skips few are."""
    versions = [str(each) for each in range(number)]
    for first, skips in itertools.product(range(number), itertools.product([False, True], repeat=number - 1)):
        asked: list[int] = []

        def differs(version: str, first: int = first, skips: tuple[bool, ...] = skips) -> bool | None:
            asked.append(int(version))  # noqa: B023
            return None if skips[int(version)] else int(version) >= first

        found, before = first_that_differs(versions, differs)
        compared = [each for each in range(number) if not (*skips, False)[each]]
        expected = next(each for each in compared if each >= first)
        last_same = max((each for each in compared if each < first), default=-1)
        assert (found, list(before)) == (str(expected), [str(each) for each in range(last_same + 1, expected)])
        assert len(set(asked)) == len(asked)
        assert any(skips) or len(asked) <= number.bit_length()
