"""What the terminal says: the devices, the layouts, what was skipped and why; in 80 columns too."""

import errno
import io
from typing import Any

import pytest
from report_samples import print_report
from rich.console import Console

from parity.config import cases
from parity.report import terminal
from parity.report.output import progress
from parity.results import (
    Against,
    CaseResult,
    Cause,
    Check,
    Divergence,
    Finding,
    LayoutCheck,
    Report,
    Suggestion,
    Variation,
)
from parity.trace.layout import Layout, Transfer

NARROW, WIDE = 80, 140


def shown(*results: CaseResult, width: int = WIDE, monkeypatch: pytest.MonkeyPatch | None = None, **facts: Any) -> str:
    report = Report(environment=facts or {"torch": {"torch": "2.13"}, "keras": {"keras": "3.15"}})
    for result in results:
        report.add(result)
    if monkeypatch:
        monkeypatch.setattr(terminal, "PIPE_WIDTH", width)
    out = io.StringIO()
    print_report(report, out)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def case(name: str = "simple_block/ddp", verdict: Any = "match", **fields: Any) -> CaseResult:
    """A case with every kind compared."""
    checks = {kind: Check(compared=3, worst_bits=27.4, worst_name="a.weight") for kind in terminal.KINDS}
    fields.setdefault("checks", {**checks, "layout": LayoutCheck()})
    return CaseResult(case=name, verdict=verdict, **{"seconds": {"torch": 10.4, "keras": 14.4}, **fields})


def cells(text: str, name: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return line.split()


# What is told below the table


def test_the_differences_of_the_layouts_are_told() -> None:
    lines = [f"compute: layer{i}: torch on 0, keras on 1" for i in range(terminal.MOST_LINES)]
    check = LayoutCheck(verdict="diverged", differences=lines)
    text = shown(case(verdict="diverged", reason=lines[0], checks={"layout": check}))
    assert all(text.count(f"\n  {line}\n") == 1 for line in lines)
    assert " more" not in text
    check.differences = [*lines, "compute: last", "compute: very last"]
    text = shown(case(verdict="diverged", checks={"layout": check}))
    assert "\n  and 2 more\n" in text and "very last" not in text


BITS = "6.7e-03 apart in float64, 2.1e-03 of the largest value: 0.0 bits, 20 needed"


def test_one_divergence_is_told_once() -> None:
    """Not again as a variation, a finding, an assumption or a line of the layouts; what differs besides is told."""
    place = Divergence(step=0, kind="activation", name="a", replica=0, bits=0.0, reason=f"on scale 100: {BITS}")
    told = case(verdict="diverged", reason=place.reason, first_divergence=place)
    told.variations = [Variation(name=name, verdict="diverged", reason=BITS) for name in ("scale 1", "scale 100")]
    text = shown(told)
    assert text.count(BITS) == 2 and "\n  2 variations: 2 diverged\n    scale 1: diverged: " in text
    noise = [Finding(id="precision.noise", side="keras", where=f"activation/{name}", message=name) for name in "ab"]
    text = shown(case(verdict="diverged", first_divergence=place, findings=noise))
    assert "precision.noise at activation/b" in text and "activation/a" not in text
    text = shown(case(verdict="inconclusive", reason="x is y; name them", assumptions=["x is y", "z"]))
    assert text.count("x is y") == 1 and "\n  assumed: z\n" in text
    place.kind, place.reason = "layout", "compute: a: torch on 0, keras on 1"
    check = LayoutCheck(verdict="diverged", differences=[place.reason, "compute: b"])
    text = shown(case(verdict="diverged", reason=place.reason, first_divergence=place, checks={"layout": check}))
    assert text.count(place.reason) == 1 and "\n  compute: b\n" in text


def test_a_side_that_is_not_its_own_training_on_a_single_device_is_told() -> None:
    wrong = Against(verdict="diverged", reason="gradient/a: 0.0 bits", worst_bits=0.0)
    text = shown(case(verdict="diverged", against_single={"torch": Against(), "keras": wrong}))
    assert "\n  keras, compared with its own training on a single device: diverged: gradient/a: 0.0 bits\n" in text
    assert "torch, compared" not in text


# Layouts side by side

ONE = Layout(
    devices=["CPU (virtual)", "CPU (virtual)"],
    parameters={"linear1.weight": [0], "linear2.weight": [1]},
    optimizer_state={"linear1.weight.momentum": [0]},
    compute={"linear1": [0], "linear2": [1]},
    backward={"linear1": [0]},
    transfers=[Transfer(what="activation", source=0, target=1, bytes=64)],
    collectives={"all_reduce": 800},
)
OTHER = Layout(
    devices=["CPU (logical)"] * 2,
    parameters={"linear1.weight": [0, 1], "linear2.weight": [1]},
    compute={"linear1": [0], "relu": [1]},
    transfers=[Transfer(what="gradient", source=1, target=0, bytes=32)],
    replicas=2,
)


def test_both_layouts_are_printed_side_by_side() -> None:
    text = shown(case(checks={"layout": LayoutCheck(sides={"torch": ONE, "keras": OTHER})}))
    table = text.partition("\nsimple_block/ddp: device layouts\n")[2].partition("\n1 case")[0]
    assert [" ".join(line.split()) for line in table.splitlines()] == [
        "torch keras",
        "devices 0 = CPU (virtual) 0 = CPU (logical)",
        "1 = CPU (virtual) 1 = CPU (logical)",
        "parameters: linear1.weight 0 0, 1",
        "parameters: linear2.weight 1 1",
        "optimizer_state: linear1.weight.momentum 0 -",
        "compute: linear1 0 0",
        "compute: linear2 1 -",
        "compute: relu - 1",
        "backward: linear1 0 -",
        "transfers: activation 0 -> 1 64 bytes -",
        "collectives: all_reduce 800 bytes -",
        "transfers: gradient 1 -> 0 - 32 bytes",
        "replicas 1 2",
    ]


# A narrow console


@pytest.mark.parametrize("verdict", ["match", "subprecision"])
def test_the_table_fits_80_columns_with_every_number(verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    against = {"torch": Against(worst_bits=22.0), "keras": Against()}
    results = [case(name, verdict, against_single=against) for name in cases.names()]
    text = shown(*results, width=NARROW, monkeypatch=monkeypatch)
    assert max(map(len, text.splitlines())) <= NARROW
    (heading,) = [line for line in text.splitlines() if line.startswith("case ")]
    assert heading.split() == ["case", "verdict", *terminal.KINDS.values(), "lay", "sgl", "s"]
    rows = [line.split()[1:] for line in text.splitlines() if "10+14" in line]
    assert rows == [[verdict, *["27"] * 7, "=", "22", "10+14"]] * len(results)


def test_what_is_declared_is_printed_once_with_the_number_of_its_cases() -> None:
    by_design = {"layout": LayoutCheck(declared=["parameters: by design (source)"])}
    text = shown(case("a/ddp", checks=by_design), case("b/ddp", checks=by_design), case("c/ddp"))
    assert text.splitlines()[-1] == "declared in 2 cases: parameters: by design (source)"
    assert "declared in" not in shown(case("c/ddp"))


# What was excused, and what was not looked at


def test_what_the_witness_excused_has_a_mark_of_its_own_and_its_size_is_told() -> None:
    equal = case("a/equal", checks={"loss": Check(compared=3)})
    excused = case("a/excused", checks={"loss": Check(compared=3, excused=2, excused_most=3e-7)})
    more = case("b/more", checks={"gradient": Check(compared=3, worst_bits=21.0, excused=1, excused_most=2.5e-5)})
    text = shown(equal, excused, more)
    assert [cells(text, name)[3] for name in ("a/equal", "a/excused")] == ["=", "~"]
    assert cells(text, "b/more")[4] == "21"
    (line,) = [line for line in text.splitlines() if line.startswith("~ ")]
    assert "3 tensors, at most 2.5e-05 of the largest value (b/more)" in line
    assert not [line for line in shown(equal).splitlines() if line.startswith("~")]


def test_a_pair_tells_what_was_not_looked_at_and_what_to_paste() -> None:
    suggestion = Suggestion(why="no argument for it", toml='[[expect]]\ncause = "weights.sum"\n')
    accepted = [Cause(id="gelu.form", where=where, reason="wanted") for where in ("a", "b")]
    told = {"not_compared": ["training mode was not run"], "suggestions": [suggestion], "expected": accepted}
    text = shown(case("pair/m", verdict="diverged", **told))
    assert "\n  training mode was not run\n" in text
    assert "\n  accepted: gelu.form at a, b: wanted\n" in text
    assert 'let --accept add it):\n\n[[expect]]\ncause = "weights.sum"\n' in text


# While cases are run


class Full(io.StringIO):
    """A file that takes one line."""

    def write(self, text: str) -> int:
        if self.getvalue():
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def test_cases_go_on_where_rows_cannot_be_printed() -> None:
    printed = terminal.Printed(Full())
    for name in ("a/single", "b/single"):
        printed.add(case(name))
    with pytest.raises(OSError, match="No space left"):
        printed.end(Report())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_what_runs() -> None:
    out = Terminal()
    console = Console(file=out, force_terminal=True, color_system=None, width=NARROW)
    with progress("comparing", 3, "cases", lambda: {"torch": "a/single", "keras": ""}, console) as advance:
        console.print("a row")
        advance()
    assert "a row" in out.getvalue() and "1/3 cases" in out.getvalue()
    assert "torch: a/single" in out.getvalue() and "keras" not in out.getvalue()
