"""Accepted differences, and what of a pair's traces has a counterpart."""

from typing import Any, NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from parity.config.pair import Expect
from parity.diagnose.diagnosis import Examined
from parity.pairs.accepting.evidence import Size
from parity.pairs.accepting.expect import apply_expected, left_over
from parity.results import CaseResult, Cause, Check, Divergence, Finding
from parity.trace.keys import in_words
from parity.trace.mapping import Mapping, Match, Matching, comparable
from parity.verdict.traces import Unequal

GELU = Cause(id="gelu.form", where="blocks.0.mlp", torch="tanh", keras="exact", evidence="...")
UNKNOWN = Cause(id="unknown", where="head", torch=None, keras=None, evidence="...")
RATE = Cause(id="learning_rate", where="head.weight", torch=0.1, keras=0.2, evidence="...")
SUM = Cause(id="weights.sum", where="rnn.bias_hh", torch="each", keras="sum", evidence="...")
ACCEPTED = Expect(cause="gelu.form", where="blocks.*.mlp", reason="the paper's form is wanted")
NAMES = ["blocks.0.mlp", "blocks.1.mlp", "head", "head.weight", "(model)", "loss"]
MLP = Unequal(0, 0, "activation", "blocks.0.mlp")
HEAD = Unequal(0, 0, "activation", "head")
NOISE = Finding(id="precision.noise", side="keras", where="activation/blocks.0.mlp", message="...")
VACUOUS = Finding(id="comparison.vacuous", side="keras", where="(model)", message="...")


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


def test_an_accepted_difference_is_a_match_that_says_so() -> None:
    second = replace(GELU, where="blocks.1.mlp")
    case = judged([GELU, second], [MLP, MLP._replace(name="blocks.1.mlp")], [ACCEPTED])
    assert case.verdict == "match" and case.findings == [] and case.first_divergence is None
    assert [each.where for each in case.expected] == ["blocks.0.mlp", "blocks.1.mlp"]
    assert case.expected[0].reason == ACCEPTED.reason and case.reason == f"accepted: {ACCEPTED.reason}"


@pytest.mark.parametrize("finding", [VACUOUS, msgspec.structs.replace(NOISE, where="activation/head")])
def test_a_finding_of_something_else_stays(finding: Finding) -> None:
    case = judged([GELU], [MLP], [ACCEPTED], fields={"findings": [NOISE, finding]})
    assert case.verdict == "match" and case.findings == [finding]


@pytest.mark.parametrize("other", [UNKNOWN, replace(GELU, where="head"), replace(GELU, id="gelu")])
def test_another_difference_beside_it_is_none(other: dict) -> None:
    case = judged([GELU, other], [MLP], [ACCEPTED])
    assert case.verdict == "diverged" and len(case.expected) == 1


def test_what_could_not_be_judged_is_not_accepted() -> None:
    checks = {"buffer": Check(verdict="inconclusive")}
    assert judged([GELU], [MLP], [ACCEPTED], fields={"checks": checks}).verdict == "inconclusive"


@pytest.mark.parametrize("verdict", ["match", "diverged"])
def test_one_that_does_not_occur_fails(verdict: str) -> None:
    case = judged([], [], [ACCEPTED], fields={"verdict": verdict})
    assert case.verdict == "diverged" and "gelu.form at blocks.*.mlp does not occur" in case.reason


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


def test_a_verdict_without_a_cause_is_not_accepted() -> None:
    case = judged([], [], [])
    assert case.verdict == "diverged" and case.reason == ""


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
    ("later", "failed", "verdict"),
    [
        (HIDDEN._replace(step=2, verdict="diverged"), "", "subprecision"),
        (HIDDEN._replace(step=2, verdict="diverged"), "activation/head", "diverged"),  # a formula shows another fault
        (Unequal(2, 0, "sample", "sample"), "", "diverged"),  # given to the models, by nothing before
        (Unequal(2, 0, "gradient", "head"), "", "diverged"),
    ],
)
def test_what_float32_did_not_see_before_it_does_not_see_behind_what_is_accepted(
    later: Unequal, failed: str, verdict: str
) -> None:
    result = CaseResult(case="pair/m", causes=[GELU], verdict="diverged")
    examined = Examined(result, [MLP, later], failed=frozenset({failed}))
    told = Told(sizes={"head": Size(1.0, 20.0, 1.0)}, hidden=("head", "sample"))
    found = left_over(examined, [ACCEPTED], told)
    assert found and (found[0], found[1].name) == (verdict, later.name)


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


def test_a_module_that_does_the_same_with_its_own_inputs_follows() -> None:
    assert judged([GELU], [MLP, HEAD], [ACCEPTED], same={"activation/head"}).verdict == "match"
    between = [MLP, Unequal(0, 0, "input", "head"), HEAD]
    assert judged([GELU], between, [ACCEPTED], same={"activation/head"}).verdict == "diverged"
    assert judged([GELU], between, [ACCEPTED], same={"activation/head", "input/head"}).verdict == "match"


def test_what_goes_into_a_module_is_no_part_of_a_cause_of_the_module() -> None:
    both = [GELU, replace(GELU, where="head")]
    accepted = [ACCEPTED, msgspec.structs.replace(ACCEPTED, where="head")]
    given = Unequal(0, 0, "input", "head")
    places = {"activation/head": "head", "input/head": "(model)", "activation/blocks.0.mlp": "blocks.0.mlp"}
    assert judged(both, [MLP, HEAD], accepted, places=places).verdict == "match"
    assert judged(both, [MLP, given, HEAD], accepted, places=places).verdict == "diverged"


def test_a_module_of_which_nothing_is_known_does_not_follow() -> None:
    case = judged([GELU], [MLP, HEAD], [ACCEPTED])
    assert case.verdict == "diverged" and "output of module `head` does not follow" in case.reason
    assert case.first_divergence and case.first_divergence.name == "head"


def test_a_tensor_that_was_equal_before_the_accepted_difference_follows_and_that_is_told() -> None:
    later = [MLP, HEAD._replace(step=1)]
    case = judged([GELU], later, [ACCEPTED], Told(before=("head",)))
    assert case.verdict == "match"
    assert case.not_compared == [
        "behind the accepted difference at blocks.0.mlp judged only by the steps before it: head"
    ]
    assert judged([GELU], later, [ACCEPTED], Told(before=("head",), sizes={"head": None})).verdict == "diverged"
    failed = judged([GELU], later, [ACCEPTED], Told(before=("head",)), failed={"activation/head"})
    assert failed.verdict == "diverged"


def test_gradients_follow_from_what_went_before_them_and_that_is_told() -> None:
    gradient = Unequal(0, 0, "gradient", "head.weight")
    case = judged([GELU], [MLP, gradient], [ACCEPTED])
    assert case.verdict == "match" and "the gradients from step 0 on" in case.not_compared[0]
    later = judged([GELU], [MLP._replace(step=1), gradient], [ACCEPTED])
    assert later.verdict == "diverged" and "gradient of parameter `head.weight` " in later.reason


def test_updates_follow_from_gradients_or_from_an_accepted_cause_of_the_optimizer() -> None:
    update, other = (Unequal(0, 0, "update", name) for name in ("head.weight", "head.bias"))
    rate = Expect(cause="learning_rate", reason="r")
    places = {"update/head.weight": "head.weight"}
    replays = Replays(moved=("head.bias",))
    assert judged([RATE], [update, other], [rate], places=places, replayed=replays).verdict == "match"
    unknown = judged([RATE], [update, other], [rate], places=places, replayed=Replays())
    assert unknown.verdict == "diverged" and "update of parameter `head.bias` does not follow" in unknown.reason
    assert judged([GELU], [MLP, update], [ACCEPTED]).verdict == "diverged"
    assert judged([GELU], [MLP, Unequal(0, 0, "gradient", "head.weight"), update], [ACCEPTED]).verdict == "match"


def test_a_cause_of_an_update_is_none_of_the_gradient_of_that_name() -> None:
    gradient, update = (Unequal(0, 0, kind, "head.weight") for kind in ("gradient", "update"))
    rate = Expect(cause="learning_rate", reason="r")
    case = judged([RATE], [gradient, update], [rate], places={"update/head.weight": "head.weight"})
    assert case.verdict == "diverged" and "gradient of parameter `head.weight` " in case.reason


@pytest.mark.parametrize(("kind", "name"), [("input", "target"), ("sample", "indices")])
def test_what_goes_into_the_model_follows_from_nothing(kind: str, name: str) -> None:
    given = Unequal(1, 0, kind, name)
    case = judged([GELU], [MLP, given], [ACCEPTED], Told(before=(name,)), same={f"{kind}/{name}"})
    assert case.verdict == "diverged" and f"{in_words(kind, name)} does not follow" in case.reason


def test_an_optimizer_without_a_formula_is_told() -> None:
    gradient, update = (Unequal(0, 0, kind, "head.weight") for kind in ("gradient", "update"))
    case = judged([GELU], [MLP, gradient, update], [ACCEPTED])
    assert case.verdict == "match" and "what the optimizer makes" in case.not_compared[-1]
    known = judged([GELU], [MLP, gradient, update], [ACCEPTED], replayed=Replays(moved=("head.weight",)))
    assert "what the optimizer makes" not in known.not_compared[-1]


def test_a_sum_of_weights_says_nothing_of_other_weights() -> None:
    moved, other = (Unequal(0, 0, "update", name) for name in ("rnn.bias_hh", "head.bias"))
    accepted = Expect(cause="weights.sum", where="rnn.bias_hh", reason="r")
    places = {"update/rnn.bias_hh": "rnn.bias_hh"}
    assert judged([SUM], [moved], [accepted], places=places).verdict == "match"
    replays = Replays(left=("rnn.bias_hh", "head.bias"))
    case = judged([SUM], [moved, other], [accepted], places=places, replayed=replays)
    assert case.verdict == "diverged" and "update of parameter `head.bias` " in case.reason
    both = msgspec.structs.replace(accepted, where="*.bias*")
    assert judged([SUM], [moved, other], [both], places=places, replayed=replays).verdict == "match"


def relative(of: float) -> Size:
    return Size(of, 20.0, 1.0)


@pytest.mark.parametrize(
    ("forward", "gradient", "before", "verdict"),
    [
        (1e-3, 4e-3, False, "match"),
        (1e-3, 1 / 3, False, "inconclusive"),  # 1.5 times what it should be
        (1e-3, 1 / 3, True, "inconclusive"),
        (1e-1, 1 / 3, False, "inconclusive"),  # behind so large a difference anything is in proportion
        (1e-1, 1 / 3, True, "match"),
        (1e-1, 1e-1, False, "match"),
    ],
)
@pytest.mark.parametrize("kind", ["gradient", "update"])
def test_what_no_formula_tells_is_in_proportion_or_inconclusive(
    kind: str, forward: float, gradient: float, before: bool, verdict: str
) -> None:
    first = Unequal(1, 0, "gradient", "tail.weight" if kind == "gradient" else "head.weight")
    behind = Unequal(1, 0, kind, "head.weight")
    sizes = {"blocks.0.mlp": relative(forward), "gradient": relative(forward), "head.weight": relative(gradient)}
    if kind == "update":
        sizes = {"activation": relative(forward), "gradient": relative(forward), "update": relative(gradient)}
    told = Told(sizes, before=("head.weight",) if before else ())
    unequal = [MLP._replace(step=1), first, behind]
    case = judged([GELU], unequal, [ACCEPTED], told)
    assert case.verdict == verdict
    if verdict == "inconclusive":
        assert f"{kind} of parameter `head.weight` differs by" in case.reason and "\n" not in case.reason
        assert case.first_divergence and case.first_divergence.name == "head.weight"
        sized = Expect(where="head.weight", largest_difference=0.5, reason="r")
        assert judged([GELU], unequal, [ACCEPTED, sized], told).verdict == "match"


@pytest.mark.parametrize(
    ("accepted", "behind", "verdict"),
    [
        (1e-9, 4e-9, "match"),
        (1e-9, 1e-7, "diverged"),  # a hundred times as far apart
        (1e-5, 1e-5, "diverged"),  # float32 would see it
        (1e-5, 1e-9, "match"),
    ],
)
def test_what_functions_make_follows_where_float32_cannot_see_the_difference(
    accepted: float, behind: float, verdict: str
) -> None:
    between = Unequal(0, 0, "input", "head")
    told = Told({"blocks.0.mlp": relative(accepted), "head": relative(behind)})
    case = judged([GELU], [MLP, between], [ACCEPTED], told)
    assert case.verdict == verdict
    assert verdict == "diverged" or case.not_compared == [
        "behind the accepted difference at blocks.0.mlp judged only by how far they are apart: head"
    ]


def test_what_was_slight_in_the_first_step_may_grow_later() -> None:
    class Growing(Told):
        def size(self, each: Unequal) -> Size | None:
            return relative(1e-9 if each.step == 0 else 1e-3)

    later = [MLP, HEAD, MLP._replace(step=2), HEAD._replace(step=2)]
    assert judged([GELU], later, [ACCEPTED], Growing()).verdict == "match"
    assert judged([GELU], later[:1] + later[2:], [ACCEPTED], Growing()).verdict == "diverged"


def test_a_step_without_its_forward_pass_is_held_against_the_last_one_with_it() -> None:
    gradient = Unequal(1, 0, "gradient", "head.weight")
    unequal = [MLP, Unequal(1, 0, "loss", "loss"), gradient]
    sizes = {"loss": relative(1e-9), "blocks.0.mlp": relative(1e-3), "head.weight": relative(5e-3)}
    assert judged([GELU], unequal, [ACCEPTED], Told(sizes), same={"loss/loss"}).verdict == "match"


def test_a_gradient_does_not_follow_from_the_statistics_of_the_same_step() -> None:
    unequal = [Unequal(0, 0, "buffer", "blocks.0.mlp.running_var"), Unequal(0, 0, "gradient", "head.weight")]
    case = judged([GELU], unequal, [ACCEPTED])
    assert case.verdict == "diverged" and "gradient of parameter `head.weight` " in case.reason


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


def test_no_bits_accept_what_the_run_precision_sees() -> None:
    accepted = Expect(where="head", at_most_bits=1000, reason="r")
    assert judged([UNKNOWN], [HEAD], [accepted], Told({"head": Size(7.0, 45.0, 1.0)})).verdict == "diverged"


def test_what_lies_behind_an_unknown_difference_wants_a_size_of_its_own() -> None:
    loss = Unequal(0, 0, "loss", "loss")
    at_head, at_loss = (Expect(where=where, largest_difference=2.0, reason="r") for where in ("head", "loss"))
    case = judged([UNKNOWN], [HEAD, loss], [at_head], same={"loss/loss"})
    assert case.verdict == "diverged" and "loss does not follow" in case.reason
    assert judged([UNKNOWN], [HEAD, loss], [at_head, at_loss]).verdict == "match"


def test_a_cause_may_have_a_size_too() -> None:
    accepted = msgspec.structs.replace(ACCEPTED, largest_difference=1e-3)
    assert judged([GELU], [MLP], [accepted], Told({"blocks.0.mlp": Size(1e-4, 9.0, 1.0)})).verdict == "match"
    assert judged([GELU], [MLP], [accepted], Told({"blocks.0.mlp": Size(1e-2, 9.0, 1.0)})).verdict == "diverged"


def test_what_has_no_counterpart_is_not_compared() -> None:
    matches = [
        Match(torch="fc", keras="dense", axes=[0, 1], inputs=[0, 1], by="weights"),
        Match(torch="act#1", keras="relu", axes=[0, 1], by="value"),
    ]
    has = comparable(Mapping(entries=[], ignored=["attn.bias"]), Matching(matches=matches))
    assert all(
        map(has, ["activation/fc", "activation/act#1", "activation/(model)", "activation/(model).y", "loss/loss"])
    )
    assert all(map(has, ["input/fc", "input/fc#1", "input/input", "input/target", "parameter/fc.weight"]))
    assert not any(map(has, ["activation/fc#1", "activation/act", "input/act", "input/act#1", "activation/other"]))
    assert not any(map(has, ["parameter/attn.bias", "gradient/attn.bias", "optimizer_state/attn.bias.exp_avg"]))


def test_without_a_mapping_everything_is_compared() -> None:
    assert comparable(None, None)("activation/anything")
