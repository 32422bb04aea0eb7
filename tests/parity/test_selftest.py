"""The self-test itself: what counts as caught, placed and named, what it prints, and how it ends."""

import io
import sys

import numpy as np
import pytest

from parity.config import cases
from parity.core.errors import BackendError, UsageError
from parity.results import CaseResult, Cause, Divergence, Finding
from parity.selftest import __main__ as command
from parity.selftest import clean, report
from parity.selftest.catalogue import ALL
from parity.selftest.outcome import At, Fault, Outcome, ask_other_checks
from parity.selftest.report import Selftest

CASE = cases.resolve("simple_block/single")
FAULT = Fault("relu.slope", "keras", At("simple_block/single"), "activation", "re*", "relu.slope")
OUTPUTS = [(np.ones(3, np.float32), np.ones(3, np.float32))]


def outcome(
    fault: Fault | None = FAULT,
    verdict: str = "diverged",
    place: tuple | None = (0, "activation", "relu"),
    causes: tuple[str, ...] = ("relu.slope",),
    findings: tuple[str, ...] = (),
) -> Outcome:
    first = Divergence(step=place[0], kind=place[1], name=place[2], replica=0, bits=0.0, reason="") if place else None
    found = [Finding(id="precision.noise", side="keras", where=where, message="") for where in findings]
    named = [Cause(id=cause, where="relu") for cause in causes]
    result = CaseResult(case="c", verdict=verdict, first_divergence=first, causes=named, findings=found)
    return Outcome(CASE, fault, result, OUTPUTS)


CLEAN = outcome(None, "match", None, ())


def test_a_run_that_fails_is_told_and_ends_with_3():
    text, failed = io.StringIO(), outcome(None, "error", None, ())
    failed.result.reason = "torch: out of memory"
    tested = Selftest([outcome(), failed])
    report.show(tested, text)
    assert "failed: simple_block/single: torch: out of memory" in text.getvalue()
    assert tested.status == 3


def test_a_false_alarm_fails():
    alarm = outcome(None)
    assert Selftest([outcome(), alarm]).status == 1


def test_the_table(capsys):
    text = io.StringIO()
    missed = outcome(FAULT._replace(name="relu.cap"), "match", None, ())
    outcomes = zip([outcome(), missed, CLEAN, outcome(None)], [True, False, False, True], strict=True)
    report.show(Selftest([each._replace(objections={"np.allclose": said}) for each, said in outcomes]), text)
    lines = text.getvalue().splitlines()
    assert lines[0].split() == ["fault", "caught", "placed", "named", "np.allclose"]
    assert lines[1].split() == ["keras:relu.cap", "no", "no", "no", "no"]
    assert lines[2].split() == ["keras:relu.slope", "yes", "yes", "yes", "yes"]
    assert "keras:relu.cap: not caught on simple_block/single: match" in lines[3]
    assert lines[4].startswith("false alarm: diverged:")
    assert '"name":"simple_block/single"' in lines[5]
    assert lines[-3:] == [
        "2 faults: 1 caught, 1 placed, 1 named",
        "2 clean runs: 1 false alarm",
        "np.allclose on the outputs: 1 caught, 1 false alarm",
    ]


def test_the_other_checks_are_the_real_ones():
    one = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)
    pairs = [[(one, one)], [(one, one + 1e-3)], [(one, one), (one, one + 2e-5)], [(one, one[:2])], []]
    objects = [False, True, True, True, False]
    expected = [dict.fromkeys(("np.allclose", "assert_close", "polygraphy"), each) for each in objects]
    assert ask_other_checks(pairs, "") == expected
    assert not {"torch", "tensorflow", "keras", "polygraphy"} & sys.modules.keys()  # they ran in another process


def test_what_became_of_the_faults_is_told_even_if_the_other_checks_fail(capfd):
    flags = ["--torch-python=/bin/false", "--keras-python=/bin/false", "--fault=keras:relu.slope", "--clean=0"]
    with pytest.raises(BackendError, match="/bin/false"):
        command.main(flags)
    assert "failed: keras:relu.slope" in capfd.readouterr().out


def test_random_cases_are_the_same_for_a_number():
    one = clean.random_cases(8, 3)
    assert len(one) == 8
    assert one == clean.random_cases(8, 3) != clean.random_cases(8, 4)


def test_without_hypothesis_clean_runs_are_refused(monkeypatch):
    monkeypatch.delitem(sys.modules, "parity.selftest.clean")
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(UsageError, match="hypothesis"):
        command.main(["--clean=1", "--fault=keras:relu.slope"])


def test_a_fault_that_there_is_not():
    with pytest.raises(UsageError, match=r"'keras:relu.slop'.*did you mean 'keras:relu.slope'"):
        command.main(["--fault=keras:relu.slop"])


@pytest.mark.parametrize("flags", [["--clean=-1"], ["--clean=many"], ["--fualt=x"], ["x"]])
def test_wrong_flags_end_with_2(flags, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(flags)
    assert ended.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_catalogue_is_large_enough():
    assert len(ALL) >= 80
    assert {fault.side for fault in ALL} == {"torch", "keras"}
