"""The pytest plugin, in a pytest of its own: the fixture, files as tests, the summary, JUnit, and several workers."""

import xml.etree.ElementTree
from collections import Counter
from pathlib import Path

import pairs_judged
import pytest

pytest_plugins = ["pytester"]

PAIR = '[pair]\nname = "{}"\ntorch = "models:torch"\nkeras = "models:keras"\n[inputs.x]\nshape = [2, 3]\n'
FLAGS = ("-p", "no:parity", "-p", "parity.pytest_plugin", "-p", "no:cacheprovider")  # whether installed or not
BOTH = """
    import pytest

    def test_match(parity):
        assert parity.assert_match(torch="a:b", keras="c:d", inputs=["x=float32[2,3]"], name="{}").verdict

    def test_other(parity):
        parity.assert_match(torch="a:b", keras="c:d", inputs=dict(x="float32[2,3]"), name="{}", train=dict(steps=2))
"""


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs_judged.use(monkeypatch)


def output(result: pytest.RunResult) -> str:
    return "\n".join(result.outlines)


def test_the_fixture(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(BOTH.format("good", "blurred"))
    result = pytester.runpytest(*FLAGS)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["parity 0*: torch *, tensorflow *, keras *; devices: auto"])
    result.stdout.fnmatch_lines(
        ["*= parity =*", "pair *verdict *bits *s *test", "good *match *24.3 *2.5 *::test_match"]
    )
    result.stdout.fnmatch_lines(["blurred *subprecision *12.0 *2.5 *::test_other"])
    assert pairs_judged.SEEN[0].search == [str(pytester.path), str(pytester.path)]  # the working folder, and the test's


def test_a_failure_is_place_cause_bits_and_the_command(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(BOTH.format("bad", "crash"))
    result = pytester.runpytest(*FLAGS)
    result.assert_outcomes(failed=2)
    text = output(result)
    for line in (
        "pair/bad: diverged",
        "  step 0: output of module `encoder.norm1`",
        "  1.5 bits",
        "  cause: layer_norm.epsilon at encoder.norm1: torch 1e-05, keras 0.001",
        "  to accept it as it is; add to the pair file (or let --accept add it):",
        "[[expect]]",
        "  again: python -m parity.compare --torch=a:b --keras=c:d '--input=x=float32[2,3]'",
        "  keras: ValueError: no such axis (model.py:7)",
        "  again: pytest test_a_failure_is_place_cause_bits_and_the_command.py::test_other",  # no flags say `train`
    ):
        assert line in result.outlines
    assert "Traceback" not in text
    assert "pytest_plugin.py" not in text
    assert "asserts.py" not in text
    result.stdout.fnmatch_lines(["bad *diverged *1.5 *2.5 *", "crash *error *- *2.5 *"])


def test_files_are_tests(pytester: pytest.Pytester) -> None:
    for name in ("good", "bad", "unplaced"):
        pytester.path.joinpath(f"{name}.parity.toml").write_text(PAIR.format(name))
    pytester.path.joinpath("broken.parity.toml").write_text(PAIR.format("good").replace("shape", "shappe"))
    pytester.path.joinpath("other.toml").write_text("[")
    result = pytester.runpytest(*FLAGS, "-v")
    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines(["good.parity.toml::good PASSED*"])
    result.stdout.fnmatch_lines(["*broken.parity.toml: *shappe*did you mean 'shape'*"])
    result.stdout.fnmatch_lines(["  torch a.weight", "  keras b/kernel"])
    result.stdout.fnmatch_lines(["unplaced *error *- *- *unplaced.parity.toml::unplaced"])
    assert f"  again: python -m parity.compare --pair={pytester.path / 'bad.parity.toml'}" in result.outlines
    assert "Traceback" not in output(result)
    assert "runtest" not in output(result)
    chosen = pytester.runpytest(*FLAGS, "good.parity.toml::good")
    chosen.assert_outcomes(passed=1)


def test_a_test_may_compare_several_pairs(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_all(parity):
            for name in ("good", "blurred"):
                parity.assert_match(torch="a:b", keras="c:d", inputs=["x=float32[2]"], name=name)
    """)
    result = pytester.runpytest(*FLAGS)
    result.stdout.fnmatch_lines(["good *match *::test_all", "blurred *subprecision *::test_all"])


def test_junit(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(BOTH.format("good", "bad"))
    pytester.runpytest(*FLAGS, "--junitxml=report.xml")
    tests = xml.etree.ElementTree.parse(pytester.path / "report.xml").getroot().iter("testcase")
    found = {
        test.get("name"): {each.get("name"): each.get("value") for each in test.iter("property")} for test in tests
    }
    assert found == {
        "test_match": {"pair": "good", "verdict": "match", "worst_bits": "24.3", "seconds": "2.5"},
        "test_other": {
            "pair": "bad", "verdict": "diverged", "worst_bits": "1.5", "seconds": "2.5", "cause": "layer_norm.epsilon",
        },
    }  # fmt: skip


def test_nothing_is_said_or_started_without_a_pair(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PARITY_TEST_LOG", str(tmp_path / "log"))
    pytester.makepyfile("def test_other(parity): pass")
    result = pytester.runpytest(*FLAGS)
    result.assert_outcomes(passed=1)
    assert "= parity =" not in output(result)
    assert not (tmp_path / "log").exists()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_each_worker_has_processes_of_its_own_until_it_ends(
    workers: int, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("PARITY_TEST_LOG", str(log))
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parent}:{Path(__file__).parents[2]}")
    pytester.makeconftest("import pytest, pairs_judged\npairs_judged.use(pytest.MonkeyPatch())")
    pytester.makepyfile("""
        import pytest, time
        @pytest.mark.parametrize("name", ["good", "blurred"] * 4)
        def test_pair(parity, name):
            time.sleep(0.05)
            parity.assert_match(torch="a:b", keras="c:d", inputs=["x=float32[2]"], name=name)
    """)
    result = pytester.runpytest_subprocess(*FLAGS, *(["-p", "xdist", "-n", str(workers)] if workers else []))
    result.assert_outcomes(passed=8)
    assert sum(line.startswith(("good ", "blurred ")) for line in result.outlines) == 8  # the summary has all of them
    said = Counter(tuple(line.split()) for line in log.read_text().splitlines())
    processes = {process for _, _, process in said}
    assert len(processes) == (workers or 1)
    assert said == Counter(
        (what, side, process) for what in ("began", "ended") for side in ("torch", "keras") for process in processes
    )


@pytest.mark.slow
def test_two_real_models(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """With both frameworks: a port, a port with a mistake, and nothing of it left behind."""
    scratch = pytester.mkdir("scratch")
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    pytester.makepyfile(
        models="""
        def torch():
            from torch import nn
            return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3))

        def keras(epsilon=1e-5):
            from keras import Input, Sequential, layers
            norm = layers.LayerNormalization(epsilon=epsilon)
            return Sequential([Input((6,)), layers.Dense(8), norm, layers.ReLU(), layers.Dense(3)])
    """
    )
    pytester.path.joinpath("filed.parity.toml").write_text(PAIR.format("filed").replace("[2, 3]", "[2, 6]"))
    pytester.makepyfile("""
        import numpy

        def test_mistake(parity):
            x = numpy.linspace(-1, 1, 24, dtype="float32").reshape(4, 6)
            parity.assert_match(
                torch="models:torch", keras="models:keras", inputs={"x": x}, keras_kwargs={"epsilon": 1e-3}
            )
    """)
    result = pytester.runpytest_subprocess(*FLAGS)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["  cause: layer_norm.epsilon at 1: torch 1e-05, keras 0.001"])
    result.stdout.fnmatch_lines(["filed *match *filed.parity.toml::filed"])
    assert not list(scratch.iterdir())
    assert not [process for process in Path("/proc").glob("[0-9]*") if str(scratch) in surroundings(process)]


def surroundings(process: Path) -> str:
    """Of a process, if it is there still."""
    try:
        return (process / "environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""
