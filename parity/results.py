"""What a comparison found, in the shape of the JSON report (docs/traces.md, "The JSON report")."""

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from parity.core.errors import BackendError, UsageError
from parity.runtime.job import Answer
from parity.trace.layout import Layout
from parity.trace.mapping import Mapping, UnmappedError

Verdict = Literal["match", "subprecision", "inconclusive", "diverged", "error", "skipped"]
ErrorKind = Literal["", "usage", "backend"]
SCHEMA = 1
RANKING: tuple[Verdict, ...] = ("match", "subprecision", "inconclusive", "diverged")


class Result(msgspec.Struct, kw_only=True):
    """Base of all parts of a report."""


class Side(Result):
    """One side of a tensor that diverged: its shape, dtype, statistics, and its value at `index`."""

    shape: list[int]
    dtype: str
    smallest: float | None = None
    largest: float | None = None
    mean: float | None = None
    value: float | None = None


class Divergence(Result):
    """The first tensor in execution order that is not the same computation, and why it was judged so."""

    step: int | None
    kind: str
    name: str
    replica: int
    bits: float | None
    reason: str
    index: list[int] = msgspec.field(default_factory=list)
    sides: dict[str, Side] = msgspec.field(default_factory=dict)


class Check(Result):
    """All tensors of one kind. `worst_bits` is over those judged by bits; null if there are none.

    `excused`: how many tensors only the witness makes a match: rounding alone grows to as much there.
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
    """The two device layouts. `sides`: the layouts themselves, with --layout."""

    verdict: Verdict = "match"
    differences: list[str] = msgspec.field(default_factory=list)
    declared: list[str] = msgspec.field(default_factory=list)
    sides: dict[str, Layout] = msgspec.field(default_factory=dict)


class Against(Result):
    """A distributed training against the same one on a single device. `skipped`: why it is not the same."""

    verdict: Verdict = "match"
    compared: int = 0
    worst_bits: float | None = None
    worst_name: str | None = None
    reason: str = ""
    skipped: str = ""


class Finding(Result):
    """A remark that fails only --strict."""

    id: str
    side: str
    where: str
    message: str


class Matched(Result):
    """Tensors that the modules of a pair returned, without the models' own. `by`: how many were found in which way.

    `layouts`: the models' outputs whose layers have other axes in Keras, with the einops pattern from torch's.
    """

    matched: int = 0
    by: dict[str, int] = msgspec.field(default_factory=dict)
    torch_alone: list[str] = msgspec.field(default_factory=list)
    keras_alone: list[str] = msgspec.field(default_factory=list)
    layouts: dict[str, str] = msgspec.field(default_factory=dict)


class Suggestion(Result):
    """What may be written into a pair's file, and why."""

    why: str
    toml: str


class Variation(Result):
    """A pair on other inputs than those given.

    `reason`: of its verdict; `skipped`: why it was left out; `failed`: what each side that does not take it says.
    """

    name: str
    verdict: Verdict
    reason: str = ""
    first_divergence: Divergence | None = None
    skipped: str = ""
    failed: dict[str, str] = msgspec.field(default_factory=dict)


class Branch(Result):
    """A branch of a model. `by`: the inputs that reached it first. `seen`: how much of it, as of an embedding's ids."""

    branch: str
    where: str
    reached: bool = False
    by: str = ""
    seen: str = ""


class Coverage(Result):
    """How many of the branches that can be seen were reached."""

    reached: int = 0
    of: int = 0
    branches: list[Branch] = msgspec.field(default_factory=list)


class CaseResult(Result):
    """One case.

    `error`: of the verdict "error", whether the user's files and flags or a backend failed. `not_compared`: what was
    not looked at, a sentence each.
    """

    case: str
    verdict: Verdict
    error: ErrorKind = ""
    reason: str = ""
    first_divergence: Divergence | None = None
    causes: list[dict[str, Any]] = msgspec.field(default_factory=list)
    checks: dict[str, Check | LayoutCheck] = msgspec.field(default_factory=dict)
    findings: list[Finding] = msgspec.field(default_factory=list)
    expected: list[dict[str, Any]] = msgspec.field(default_factory=list)
    suggestions: list[Suggestion] = msgspec.field(default_factory=list)
    not_compared: list[str] = msgspec.field(default_factory=list)
    matched: Matched | None = None
    mapping: Mapping | None = None
    undecided: list[str] = msgspec.field(default_factory=list)
    variations: list[Variation] = msgspec.field(default_factory=list)
    coverage: Coverage | None = None
    assumptions: list[str] = msgspec.field(default_factory=list)
    lifted: list[str] = msgspec.field(default_factory=list)
    casts: dict[str, dict[str, list[str]]] = msgspec.field(default_factory=dict)
    devices: dict[str, list[str]] = msgspec.field(default_factory=dict)
    against_single: dict[str, Against] = msgspec.field(default_factory=dict)
    seconds: dict[str, float] = msgspec.field(default_factory=dict)
    changed: dict[str, list[str]] = msgspec.field(default_factory=dict)  # since the golden trace: before and now


class Report(Result):
    """A whole comparison. `error`: what ended it before all cases were compared; "" if nothing did."""

    schema: int = SCHEMA
    error: str = ""
    environment: dict[str, Any] = msgspec.field(default_factory=dict)
    summary: dict[str, int] = msgspec.field(default_factory=dict)
    cases: list[CaseResult] = msgspec.field(default_factory=list)

    def add(self, result: CaseResult) -> None:
        """Count one more case."""
        self.summary = self.summary or dict.fromkeys((*RANKING, "error", "skipped"), 0)
        self.summary[result.verdict] += 1
        self.cases.append(result)

    def status(self, strict: bool) -> int:
        """Return the exit status: of errors 3 (a backend's) before 2 (usage), then 1, 2 (nothing compared) and 0."""
        if errors := {case.error for case in self.cases if case.verdict == "error"}:
            return 2 if errors == {"usage"} else 3
        failed = self.summary.get("diverged") or self.summary.get("inconclusive")
        if failed or (strict and any(_not_strict(case) for case in self.cases)):
            return 1
        compared = self.summary.get("match", 0) + self.summary.get("subprecision", 0)
        return 0 if compared else 2


def failed(case: str, error: UsageError | BackendError) -> CaseResult:
    """Return the result of a case that could not be compared, with the mapping of weights as far as it was found."""
    result = CaseResult(case=case, verdict="error", reason=str(error).removeprefix(f"{case}: "))
    result.error = "usage" if isinstance(error, UsageError) else "backend"
    result.mapping = error.mapping if isinstance(error, UnmappedError) else None
    return result


def error_kind(answers: Iterable[Answer]) -> ErrorKind:
    """Return the worst kind of error among the answers of backends: "backend" before "usage"."""
    statuses = {answer.status for answer in answers}
    return "backend" if "error" in statuses else "usage" if "usage" in statuses else ""


def worst(verdicts: list[Verdict]) -> Verdict:
    """The worst of some verdicts; match if there are none."""
    return max(verdicts, key=RANKING.index, default="match")


def _not_strict(case: CaseResult) -> bool:
    return case.verdict == "subprecision" or bool(case.findings)
