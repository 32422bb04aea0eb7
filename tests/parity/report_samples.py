"""Reports for the tests of pages and other formats: real comparisons of the numpy network, and names with markup."""

from pathlib import Path
from typing import Any, TextIO

from synthetic import honest, record, small_case
from verdicts import times

from parity.details import Compared, Counterpart, Details, Extent, share
from parity.diagnose.diagnosis import examined
from parity.report import terminal
from parity.results import CaseResult, Cause, Check, Divergence, Finding, LayoutCheck, Report, Side, Suggestion
from parity.trace.layout import Layout, Transfer

HOSTILE = ('<script>document.title = "run"</script>', '"><img src=x onerror="document.title = 1">', "a|b`c`{{ 7 * 7 }}")
ENVIRONMENT = {"torch": {"torch": "2.13.0", "python": "3.11"}, "keras": {"keras": "3.15.1", "python": "3.12"}}
TWO = Layout(
    devices=["CPU (virtual)", "CPU (virtual)"],
    parameters={"linear1.weight": [0], "linear2.weight": [1]},
    compute={"linear1": [0], "relu": [0], "linear2": [1]},
    transfers=[Transfer(what="activation", source=0, target=1, bytes=2048)],
    collectives={"all_reduce": 800},
)


def print_report(report: Report, file: TextIO) -> None:
    """Print a whole report as parity.compare does, row by row."""
    printed = terminal.Printed(file)
    printed.names = [case.case for case in report.cases]
    for case in report.cases:
        printed.add(case)
    printed.end(report)


def compared(folder: Path, factor: float = 1.0, **changes: Any) -> CaseResult:
    """Compare the numpy network with itself; the candidate's gradient of linear1.bias is `factor` times too large."""
    fault = times(factor, "gradient", "linear1.bias") if factor != 1 else honest
    reference = record(folder / "torch", "torch", small_case(**changes))
    candidate = record(folder / "keras", "keras", small_case(**changes), backwards=True, fault=fault)
    return examined(reference, candidate).result


def sample(folder: Path) -> Report:
    """A report of a match, a divergence with a cause, a case that was skipped, and one that failed."""
    report = Report(command="python -m parity.compare", environment=ENVIRONMENT)
    match = compared(folder / "match")
    match.command = "python -m parity.compare --case=simple_block/single"
    match.checks["layout"] = LayoutCheck(declared=["transfers: by design"], sides={"torch": TWO, "keras": TWO})
    diverged = compared(folder / "diverged", 1.5)
    diverged.case = "pair/mine"
    diverged.command = "python -m parity.compare --pair=mine.toml"
    sides = {"torch": 1e-5, "keras": 1e-3}
    at, how = "my models/port.py:12", "recomputed"
    diverged.causes = [Cause(id="layer_norm.epsilon", where="norm", **sides, evidence=how, source=at)]
    diverged.suggestions = [Suggestion(why="it differs", toml='[[expect]]\ncause = "layer_norm.epsilon"\n')]
    for result in (match, diverged):
        report.add(result)
    report.add(CaseResult(case="simple_block/hybrid", verdict="skipped", reason="it needs 4 devices, not 2"))
    report.add(CaseResult(case="pair/broken", verdict="error", error="usage", reason="mine.toml: no such file"))
    return report


def hostile() -> Report:
    """A report in which every text that users can choose holds markup."""
    script, image, template = HOSTILE
    report = Report(
        command=f"python -m parity.compare {script}", environment={"torch": {script: image}, "keras": {script: "1"}}
    )
    first = Divergence(step=0, kind="activation", name=image, replica=0, bits=0.0, reason=script, index=[0])
    first.sides = {"torch": Side(shape=[1], dtype=script, value=1.0), "keras": Side(shape=[1], dtype=image, value=2.0)}
    case = CaseResult(case=f"pair/{script}", verdict="diverged", first_divergence=first, reason=image, command=image)
    case.causes = [Cause(id=script, where=image, torch=template, keras=script, evidence=image, source=f"{script}:3")]
    case.checks = {"activation": Check(verdict="diverged", compared=1, worst_bits=0.0, worst_name=image)}
    layout = Layout(devices=[script], parameters={image: [0]}, compute={script: [0]}, collectives={image: 8})
    case.checks["layout"] = LayoutCheck(differences=[script], sides={"torch": layout, "keras": layout})
    case.findings = [Finding(id=script, side="keras", where=image, message=template)]
    case.suggestions = [Suggestion(why=script, toml=image)]
    row = Compared(
        step=0, replica=0, kind="activation", name=image, verdict="diverged", bits=0.0, scale=1.0, difference=1.0
    )
    losses: dict[str, list[float | None]] = {"torch": [1.0, 2.0], "keras": [1.0, 3.0]}
    counterpart = Counterpart(what="activation", torch=image, keras=script, by=template)
    case.details = Details(needed=20, tensors=[row], losses=losses, counterparts=[counterpart])
    case.extent = Extent(parameters=share(1, 2), activations=share(1, 1), alone={"keras": [script]})
    case.not_compared, case.lifted, case.resolved, case.data = [script], [image], {script: image}, {image: script}
    report.add(case)
    return report
