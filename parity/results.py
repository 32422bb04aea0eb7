"""The result of a comparison, as structs with the fields of the JSON report (docs/traces.md, "The JSON report")."""

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from parity.config.sides import Side as PairSide
from parity.core.errors import BackendError, UsageError
from parity.details import Cause as Cause
from parity.details import Changed as Changed
from parity.details import Details, Extent
from parity.details import Result as Result
from parity.details import Verdict as Verdict
from parity.runtime.job import Answer
from parity.trace.layout import Layout
from parity.trace.mapping import MappedError, Mapping, UnmappedError

ErrorKind = Literal["", "usage", "backend"]
SCHEMA = 1
ELSEWHERE = "equal on your inputs; differs at"  # how the reason begins where a variation of the inputs decides
RANKING: tuple[Verdict, ...] = ("match", "subprecision", "inconclusive", "diverged")


class Side(Result):
    """One side of a tensor that diverged: its shape, dtype and statistics, and its value at `Divergence.index`."""

    shape: list[int]
    dtype: str
    smallest: float | None = None
    largest: float | None = None
    mean: float | None = None
    value: float | None = None


class Divergence(Result):
    """The first tensor in execution order that differs between the two traces, and the rule that it failed.

    `index` is the position of the largest difference; `step` and `bits` are null where they do not apply. `module` is
    the class of the reference's module that the tensor belongs to, "" if it belongs to none or that is not known.
    """

    step: int | None
    kind: str
    name: str
    replica: int
    bits: float | None
    reason: str
    index: list[int] = []
    sides: dict[str, Side] = {}
    module: str = ""


class Check(Result):
    """The verdict on all tensors of one kind, e.g. all gradients.

    `worst_bits`: the fewest bits among the tensors that are judged by bits; null if there are none.
    `excused`: how many tensors match only by the witness, which shows that rounding alone grows as large there.
    `excused_most`: the largest difference among these, relative to the largest value of its tensor.
    """

    verdict: Verdict = "match"
    compared: int = 0
    worst_bits: float | None = None
    worst_name: str | None = None
    worst_step: int | None = None
    excused: int = 0
    excused_most: float | None = None


class LayoutCheck(Result):
    """The comparison of the two device layouts; `sides` holds the layouts themselves if --layout is given."""

    verdict: Verdict = "match"
    differences: list[str] = []
    declared: list[str] = []
    sides: dict[str, Layout] = {}


class Against(Result):
    """The comparison of a distributed training with the same training on a single device.

    `skipped`: why the two were not compared, e.g. because they are not the same mathematics.
    """

    verdict: Verdict = "match"
    compared: int = 0
    worst_bits: float | None = None
    worst_name: str | None = None
    reason: str = ""
    skipped: str = ""


class Finding(Result):
    """An observation that does not change the verdict and fails only with --strict."""

    id: str
    side: str
    where: str
    message: str


class Matched(Result):
    """How the tensors that inner modules of a pair's models return were matched between the two frameworks.

    `by`: how many tensors each rule matched. `torch_alone`, `keras_alone`: tensors without a counterpart.
    `layouts`: outputs whose axes Keras orders differently, each with the einops pattern from torch's order.
    """

    matched: int = 0
    by: dict[str, int] = {}
    torch_alone: list[str] = []
    keras_alone: list[str] = []
    layouts: dict[str, str] = {}


class Suggestion(Result):
    """A TOML fragment that a user may add to the pair file, and the reason for it."""

    why: str
    toml: str


class Variation(Result):
    """The comparison of a pair on a variation of its inputs, e.g. another batch size.

    `reason`: why the verdict was given; `skipped`: why the variation was left out; `failed`: the error message of each
    side that rejects these inputs.
    """

    name: str
    verdict: Verdict
    reason: str = ""
    first_divergence: Divergence | None = None
    skipped: str = ""
    failed: dict[str, str] = {}


class Branch(Result):
    """A branch of a model, e.g. one side of a clamp, and whether any inputs reached it.

    `by`: the inputs that reached it first. `seen`: what part of it was reached, e.g. how many of an embedding's ids.
    """

    branch: str
    where: str
    reached: bool = False
    by: str = ""
    seen: str = ""


class Coverage(Result):
    """How many of the model's branches were reached, among those that can be observed."""

    reached: int = 0
    of: int = 0
    branches: list[Branch] = []


class TriedEdit(Result):
    """An edit of the port that --repair tried: where, the line before it and after it, and what came of it.

    `cause`, `where`: what it was to remove. `why`: why it was refused.
    """

    file: str
    line: int
    cause: str
    where: str
    before: str
    after: str
    accepted: bool
    why: str = ""


class Repair(Result):
    """What --repair has done: the file with the diff, and the verdict on the pair with the accepted edits.

    `left`: sentences on causes that no edit removes. `root`: the folder that paths are relative to.
    """

    file: str
    root: str
    verdict: Verdict
    edits: list[TriedEdit] = []
    left: list[str] = []


class CaseResult(Result):
    """The result of one case or pair.

    `error`: for the verdict "error", whether the user's input ("usage") or a backend ("backend") was at fault.
    `command`: compares this case again. `resolved`, `data`: the case with all its settings, and digests of its data.
    `extent`: how much was compared. `details`: what the HTML report draws, if --html is given.
    `sides`: the two sides of the pair's file, where these are compared.
    `expected`: differences that the pair file accepts. `not_compared`: sentences on what was left out.
    `lifted`: float32 computations that were promoted to float64 in the high runs. `reproduced`: what the scripts of
    --reproduce have printed.
    """

    case: str
    verdict: Verdict
    error: ErrorKind = ""
    reason: str = ""
    first_divergence: Divergence | None = None
    causes: list[Cause] = []
    checks: dict[str, Check | LayoutCheck] = {}
    findings: list[Finding] = []
    expected: list[Cause] = []
    suggestions: list[Suggestion] = []
    not_compared: list[str] = []
    matched: Matched | None = None
    mapping: Mapping | None = None
    undecided: list[str] = []
    variations: list[Variation] = []
    coverage: Coverage | None = None
    assumptions: list[str] = []
    lifted: list[str] = []
    casts: dict[str, dict[str, list[str]]] = {}
    devices: dict[str, list[str]] = {}
    against_single: dict[str, Against] = {}
    seconds: dict[str, float] = {}
    changed: dict[str, list[str]] = {}  # versions etc.: [in the golden trace, now]
    reproduced: list[str] = []
    repair: Repair | None = None
    command: str = ""
    resolved: dict[str, Any] = {}
    data: dict[str, str] = {}
    extent: Extent | None = None
    details: Details | None = None
    sides: dict[str, PairSide] | msgspec.UnsetType = msgspec.UNSET

    @property
    def layout(self) -> LayoutCheck | None:
        """Return the comparison of the device layouts; None if there is none."""
        check = self.checks.get("layout")
        return check if isinstance(check, LayoutCheck) else None

    @property
    def alone(self) -> str:
        """Return the side that was compared with itself alone, where the other has no such strategy, or ""."""
        return next(iter(self.devices)) if self.against_single and len(self.devices) == 1 else ""


class Report(Result):
    """The report on all cases; `error` is the message that ended the comparison early, or "".

    `command`: the command line that was run.
    """

    schema: int = SCHEMA
    error: str = ""
    command: str = ""
    environment: dict[str, Any] = {}
    summary: dict[str, int] = {}
    cases: list[CaseResult] = []

    def add(self, result: CaseResult) -> None:
        """Add a case, and count its verdict in the summary."""
        self.summary = self.summary or dict.fromkeys((*RANKING, "error", "skipped"), 0)
        self.summary[result.verdict] += 1
        self.cases.append(result)

    def status(self, strict: bool) -> int:
        """Return the exit status.

        3 if a backend failed, else 2 if the user's input was wrong, else 1 if a case failed, else 2 if nothing was
        compared, else 0. `strict` makes subprecision verdicts and findings fail as well.
        """
        if errors := {case.error for case in self.cases if case.verdict == "error"}:
            return 2 if errors == {"usage"} else 3
        failed = self.summary.get("diverged") or self.summary.get("inconclusive")
        if failed or (strict and any(case.verdict == "subprecision" or case.findings for case in self.cases)):
            return 1
        return 0 if self.summary.get("match") or self.summary.get("subprecision") else 2


def failed(case: str, error: UsageError | BackendError) -> CaseResult:
    """Return the result of a case that could not be compared, with as much of the weight mapping as is known."""
    result = CaseResult(case=case, verdict="error", reason=str(error).removeprefix(f"{case}: "))
    result.error = "usage" if isinstance(error, UsageError) else "backend"
    result.mapping = error.mapping if isinstance(error, (UnmappedError, MappedError)) else None
    result.assumptions = list(result.mapping.assumptions) if result.mapping else []
    return result


def error_kind(answers: Iterable[Answer]) -> ErrorKind:
    """Return the worst kind of error among the backends' answers: "backend" before "usage", or ""."""
    statuses = {answer.status for answer in answers}
    return "backend" if "error" in statuses else "usage" if "usage" in statuses else ""


def worst(verdicts: list[Verdict]) -> Verdict:
    """Return the worst of the verdicts; "match" if there are none."""
    return max(verdicts, key=RANKING.index, default="match")
