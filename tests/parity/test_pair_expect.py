"""Accepted differences, and what of a pair's traces has a counterpart."""

from typing import Any, NamedTuple

import msgspec
import pytest

from parity.config.pair import Expect
from parity.diagnose.diagnosis import Examined
from parity.pairs.accepting.evidence import Size
from parity.pairs.accepting.expect import apply_expected, left_over
from parity.results import CaseResult, Cause, Check, Divergence, Finding
from parity.trace.mapping import Mapping, Match, Matching, comparable
from parity.verdict.traces import Unequal

GELU = Cause(id="gelu.form", where="blocks.0.mlp", torch="tanh", keras="exact", evidence="...")
UNKNOWN = Cause(id="unknown", where="head", torch=None, keras=None, evidence="...")
ACCEPTED = Expect(cause="gelu.form", where="blocks.*.mlp", reason="the paper's form is wanted")
NAMES = ["blocks.0.mlp", "blocks.1.mlp", "head", "head.weight", "(model)", "loss"]
MLP = Unequal(0, 0, "activation", "blocks.0.mlp")
HEAD = Unequal(0, 0, "activation", "head")
NOISE = Finding(id="precision.noise", side="keras", where="activation/blocks.0.mlp", message="...")


class Told(NamedTuple):
    """In the place of two traces: the tensors' sizes, and those that matched, or were hidden, in a step before."""

    sizes: dict[str, Size | None] = {}
    before: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    names: list[str] = NAMES
    needed: int = 20
    trains: bool = True

    def size(self, each: Unequal) -> Size | None:
        return self.sizes.get(each.name, self.sizes.get(each.kind, Size(1.0, 20.0, 100.0)))

    def matched_before(self, each: Unequal) -> bool:
        return each.name in self.before

    moved_alike_before = matched_before

    def was_hidden(self, each: Unequal) -> bool:
        return each.name in self.hidden


class Replays(NamedTuple):
    """In the place of an optimizer's formula: the parameters whose updates it makes, and those left as they were."""

    moved: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    def reproduces(self, name: str, replica: int, frozen: bool) -> bool:
        return name in self.moved or (frozen and name in self.left)


def judged(
    causes: list[Cause], unequal: list[Unequal], expected: list[Expect], told: Any = None, **more: Any
) -> CaseResult:
    """The verdict on a case that diverged at its first tensor."""
    first = Divergence(step=0, kind="activation", name=NAMES[0], replica=0, bits=0.0, reason="apart")
    fields = {"verdict": "diverged", "findings": [NOISE]} | more.pop("fields", {})
    result = CaseResult(case="pair/m", causes=causes, first_divergence=first, **fields)
    apply_expected(Examined(result, unequal, **more), expected, told or Told())
    return result


def test_what_could_not_be_judged_is_not_accepted() -> None:
    checks = {"buffer": Check(verdict="inconclusive")}
    assert judged([GELU], [MLP], [ACCEPTED], fields={"checks": checks}).verdict == "inconclusive"


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        (Expect(cause="gelu.from", where="blocks.*.mlp", reason="r"), "(did you mean 'gelu.form'?)"),
        (Expect(cause="gelu.form", where="block.0.mlp", reason="r"), "(did you mean 'blocks.0.mlp'?)"),
        (Expect(where="haed", largest_difference=1.0, reason="r"), "(did you mean 'head'?)"),
    ],
)
def test_the_nearest_name_is_told(expected: Expect, said: str) -> None:
    case = judged([GELU], [MLP], [expected])
    assert case.verdict == "diverged" and "does not occur" in case.reason and said in case.reason
    assert "\n" not in case.reason


HIDDEN = Unequal(0, 0, "activation", "head", "subprecision")
TAIL = Unequal(0, 0, "activation", "tail")


def left(
    causes: list[Cause], unequal: list[Unequal], verdict: str = "diverged"
) -> tuple[str, str, float | None] | None:
    result = CaseResult(case="pair/m", causes=causes, verdict=verdict)
    found = left_over(Examined(result, unequal), [ACCEPTED], Told(sizes={"head": Size(1e-9, 12.0, 0.5), "tail": None}))
    return (found[0], found[1].name, found[1].bits) if found else None


def test_what_is_left_where_every_cause_is_accepted_is_looked_at_by_itself() -> None:
    assert left([GELU], [HIDDEN, MLP]) == ("subprecision", "head", 8.0)
    assert left([GELU], [HIDDEN, MLP, TAIL]) == ("diverged", "tail", None)  # what float32 sees comes first


@pytest.mark.parametrize(
    ("causes", "unequal"),
    [([GELU], [MLP]), ([GELU, UNKNOWN], [HIDDEN, MLP])],
    ids=["nothing differs", "a cause is not accepted"],
)
def test_nothing_is_left(causes: list[Cause], unequal: list[Unequal]) -> None:
    assert left(causes, unequal) is None
    assert left([GELU], [HIDDEN, MLP], "match") is None


def test_an_expected_difference_that_float32_cannot_see_may_occur_beside_a_visible_one() -> None:
    """The causes of such differences are not looked for as long as there are visible ones."""
    precision = Expect(cause="constant.precision", where="head", reason="r")
    case = judged([GELU, UNKNOWN], [HIDDEN, MLP], [ACCEPTED, precision])
    assert case.verdict == "diverged" and "does not occur" not in case.reason
    elsewhere = judged([GELU, UNKNOWN], [HIDDEN, MLP], [ACCEPTED, msgspec.structs.replace(precision, where="loss")])
    assert "constant.precision at loss does not occur" in elsewhere.reason


def test_a_module_of_which_nothing_is_known_does_not_follow() -> None:
    case = judged([GELU], [MLP, HEAD], [ACCEPTED])
    assert case.verdict == "diverged" and "output of module `head` does not follow" in case.reason
    assert case.first_divergence and case.first_divergence.name == "head"


def test_an_optimizer_without_a_formula_is_told() -> None:
    gradient, update = (Unequal(0, 0, kind, "head.weight") for kind in ("gradient", "update"))
    case = judged([GELU], [MLP, gradient, update], [ACCEPTED])
    assert case.verdict == "match" and "what the optimizer makes" in case.not_compared[-1]
    known = judged([GELU], [MLP, gradient, update], [ACCEPTED], replayed=Replays(moved=("head.weight",)))
    assert "what the optimizer makes" not in known.not_compared[-1]


def relative(of: float) -> Size:
    return Size(of, 20.0, 1.0)


def test_a_step_without_its_forward_pass_is_held_against_the_last_one_with_it() -> None:
    gradient = Unequal(1, 0, "gradient", "head.weight")
    unequal = [MLP, Unequal(1, 0, "loss", "loss"), gradient]
    sizes = {"loss": relative(1e-9), "blocks.0.mlp": relative(1e-3), "head.weight": relative(5e-3)}
    assert judged([GELU], unequal, [ACCEPTED], Told(sizes), same={"loss/loss"}).verdict == "match"


def test_the_loss_of_a_pair_that_does_not_train_follows_from_its_outputs() -> None:
    loss = Unequal(0, 0, "loss", "loss")
    case = judged([GELU], [MLP, loss], [ACCEPTED], Told(trains=False))
    assert case.verdict == "match" and case.not_compared == []
    assert judged([GELU], [MLP, loss], [ACCEPTED]).verdict == "diverged"


@pytest.mark.parametrize(
    ("size", "verdict"), [(Size(0.9e-3, 12.0, 1.0), "match"), (Size(1.1e-3, 12.0, 1.0), "diverged"), (None, "diverged")]
)
def test_an_unknown_difference_is_accepted_by_its_size(size: Size | None, verdict: str) -> None:
    accepted = Expect(cause="unknown", where="head*", largest_difference=1e-3, reason="interpolated differently")
    assert judged([UNKNOWN], [HEAD], [accepted], Told({"head": size})).verdict == verdict


@pytest.mark.parametrize(("missing", "verdict"), [(2.9, "match"), (3.1, "diverged")])
def test_an_unknown_difference_is_accepted_by_its_bits(missing: float, verdict: str) -> None:
    accepted = Expect(where="head", at_most_bits=3, reason="r")
    assert judged([UNKNOWN], [HEAD], [accepted], Told({"head": Size(1e-9, missing, 1.0)})).verdict == verdict


def test_what_lies_behind_an_unknown_difference_wants_a_size_of_its_own() -> None:
    loss = Unequal(0, 0, "loss", "loss")
    at_head, at_loss = (Expect(where=where, largest_difference=2.0, reason="r") for where in ("head", "loss"))
    case = judged([UNKNOWN], [HEAD, loss], [at_head], same={"loss/loss"})
    assert case.verdict == "diverged" and "loss does not follow" in case.reason
    assert judged([UNKNOWN], [HEAD, loss], [at_head, at_loss]).verdict == "match"


def test_what_has_no_counterpart_is_not_compared() -> None:
    matches = [
        Match(torch="fc", keras="dense", axes=[0, 1], inputs=[0, 1], by="weights"),
        Match(torch="act#1", keras="relu", axes=[0, 1], by="value"),
    ]
    has = comparable(Mapping(entries=[], ignored=["attn.bias"]), Matching(matches=matches))
    assert all(
        map(has, ["activation/fc", "activation/act#1", "activation/(model)", "activation/(model).y", "loss/loss"])
    )
    assert all(map(has, ["activation/fc#1", "activation/act#3"]))  # of another pass
    assert all(map(has, ["input/fc", "input/fc#1", "input/input", "input/target", "parameter/fc.weight"]))
    assert not any(map(has, ["activation/act#2", "activation/act", "input/act", "input/act#1", "activation/other"]))
    assert not any(map(has, ["parameter/attn.bias", "gradient/attn.bias", "optimizer_state/attn.bias.exp_avg"]))
