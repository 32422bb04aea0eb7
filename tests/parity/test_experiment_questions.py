"""Which modules of a pair experiments ask, and what they are asked behind a difference that is explained."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from causes_made import made
from msgspec.structs import asdict, replace
from synthetic import by_hand
from verdicts import tensors

from parity.diagnose.experiment.knobs import THEIRS
from parity.diagnose.experiment.later import Parted, telling
from parity.diagnose.experiment.questions import Asked, Guilty, guilty
from parity.pairs.causes.experiment import Experiment
from parity.pairs.causes.further import besides as causes_besides
from parity.results import CaseResult, Cause, Divergence, Verdict
from parity.runtime.experiment import Change, Found, Outcome, Question, Tensor
from parity.runtime.survey import Seen, Survey
from parity.trace.keys import MODEL
from parity.trace.manifest import Trace
from parity.trace.mapping import Entry, Mapping, Match, Matching, PairContext
from parity.verdict.traces import Unequal

TRACE = cast(Trace, SimpleNamespace(folder=Path("trace")))


def activation(name: str) -> Unequal:
    return Unequal(step=0, replica=0, kind="activation", name=name)


def asked(*unequal: Unequal) -> Asked:
    survey = Survey(side="torch", modules=[], weights=[], called=[])
    return Asked(survey, Matching(matches=[]), unequal, (TRACE, TRACE))


def result(*where: str) -> CaseResult:
    causes = [Cause(id="unknown", where=each) for each in where]
    return CaseResult(case="pair/x", verdict="diverged", causes=causes)


def change(name: str, **fields: Any) -> Change:
    usual = {"owner": "conv2d", "source": "", "kind": "operation", "path": name, "of": "conv2d"}
    return Change(**{**usual, "name": "padding", "before": "1", "after": "same", **fields})


def test_the_first_tensor_that_differs_at_a_place_is_asked_about() -> None:
    tensors = [activation("a"), activation("b"), activation("b#1")]
    assert guilty(result("b"), tensors, {}) == [Guilty("b", tensors[1])]


def test_a_place_around_what_differs_is_asked_about_the_first_tensor_within() -> None:
    """Where what is passed to a module could not be compared, the place is the module around it."""
    tensors = [activation("decoder.a"), activation("encoder.conv2"), activation("encoder.norm")]
    assert guilty(result("encoder"), tensors, {}) == [Guilty("encoder", tensors[1])]


def test_a_place_that_is_taken_to_be_responsible_is_asked_about_what_differed_first() -> None:
    """What the module returns may be another thing on both sides, as a sum that holds the residual or does not."""
    tensors = [activation("block.attention.dropout"), activation("block.attention"), activation("block")]
    first = Divergence(step=0, kind="activation", name="block.attention", replica=0, bits=0.0, reason="differs")
    told = replace(result("block.attention"), first_divergence=first)
    assert guilty(told, tensors, {}, "activation/block.attention.dropout") == [Guilty("block.attention", tensors[0])]
    assert guilty(told, tensors, {}, "activation/block.attention") == [Guilty("block.attention", tensors[1])]


@pytest.mark.parametrize(("layers", "expected"), [(["rnn"], ("lstm", "rnn")), (["rnn", "rnn_1"], ("", ""))])
def test_a_module_that_is_several_layers_in_keras_is_asked_with_the_whole_model(
    layers: list[str], expected: tuple[str, str]
) -> None:
    """What goes into the last layer of a stack is not what goes into the stack."""
    survey = Survey(
        side="torch", modules=[], weights=[], called=[], outputs=[Seen(key="lstm", module="lstm", shape=(2,))]
    )
    matching = Matching(matches=[Match(torch="lstm", keras=layers[-1], axes=[0], by="weights")])
    entries = [Entry(torch=[f"lstm.{number}"], keras=[f"{layer}/kernel"]) for number, layer in enumerate(layers)]
    made = Asked(survey, matching, [], (TRACE, TRACE), Mapping(entries=entries)).questions(
        Guilty("lstm", activation("lstm"))
    )
    assert made and (made[0].module, made[1].module) == expected


@pytest.mark.parametrize(
    ("earlier", "verdict", "layer", "expected"),
    [
        ("stages.0", "diverged", "", True),
        ("stages.0", "diverged", "block_1", False),
        ("text.0", "diverged", "", False),
        ("stages.0", "subprecision", "", False),  # far too small to make this one
    ],
)
def test_what_the_whole_model_keeps_from_an_earlier_difference_is_not_asked(
    earlier: str, verdict: Verdict, layer: str, expected: bool
) -> None:
    first, before = activation("stages.1"), activation(earlier)._replace(verdict=verdict)
    assert asked(before, first, activation("stages.2")).is_behind(first, layer) is expected


class Sides:
    """Both sides' answers; torch's has to change `besides` as well, for the outputs of these names."""

    def __init__(self, besides: Change, *names: str) -> None:
        self.besides, self.names, self.given, self.is_same = besides, names, [], False

    def answer(self, questions: dict[str, tuple[Question, Question]]) -> dict[str, tuple[Outcome, Outcome]]:
        return {name: (self._torch(name, question), Outcome(settings=[7])) for name, (question, _) in questions.items()}

    def _torch(self, name: str, question: Question) -> Outcome:
        self.given.append((name, question.settings, question.given))
        changes = [*question.given, self.besides]
        found = [Found(changes=changes, bits=28.0, before=0.0)] if question.given and name in self.names else []
        return Outcome(found=found, same=self.is_same and bool(question.given))


def named(first: Change) -> list[Cause]:
    return [made("conv2d.padding", MODEL, [{"side": "torch", **asdict(first)}])]


def test_behind_an_explained_difference_each_output_is_asked_about() -> None:
    first, besides = change("conv1"), change("up1", of="conv_transpose2d", owner="conv_transpose2d")
    sides = Sides(besides, f"{MODEL}.image")
    outputs = [activation("head"), activation(f"{MODEL}.image"), activation(f"{MODEL}.mean")]
    (cause,) = causes_besides(asked(*outputs), named(first), sides.answer)
    assert (cause.id, cause.where, cause.keras) == ("conv_transpose.padding", "up1", "same")
    names = [f"{MODEL}.image", f"{MODEL}.mean"]
    assert sides.given == [(name, None, []) for name in names] + [(name, [7], [first]) for name in names]


def test_nothing_is_left_only_where_every_output_is_the_others() -> None:
    sides, outputs = Sides(change("conv2"), "none"), [activation(MODEL)]
    assert causes_besides(asked(*outputs), named(change("conv1")), sides.answer) is None
    sides.is_same = True
    assert causes_besides(asked(*outputs), named(change("conv1")), sides.answer) == []


def test_a_function_cannot_be_kept_and_nothing_is_asked() -> None:
    sides, output = Sides(change("conv2"), MODEL), [activation(MODEL)]
    assert causes_besides(asked(*output), named(change("act", kind="callable")), sides.answer) is None
    assert sides.given == []


def cause(name: str) -> Cause:
    return made(name, changes=[{"name": "mask", "after": name}])


class Answered(Experiment):
    """An experiment of which it is known what is found at each place, by the module that is asked."""

    def found_by(self, answers: dict[str, list[str]]) -> "Answered":
        self.answers = answers
        return self

    def _named(self, questions: dict[str, tuple[Question, Question]]) -> dict[str, list[Cause]]:
        asked_there = {where: self.answers.get(torch.module) for where, (torch, _) in questions.items()}
        return {where: list(map(cause, names)) for where, names in asked_there.items() if names is not None}


CONTEXT = PairContext(search=[], matching=Matching(matches=[]))


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"block.attention": ["mask"], "block": ["padding"]}, ["mask"]),
        ({"block.attention": ["operator", "scale"], "block": ["padding"]}, ["padding"]),
        ({"block.attention": ["operator", "scale"], "block": ["norm", "window"], "": ["ids"]}, ["ids"]),
        ({"block.attention": ["operator", "scale"], "block": ["norm", "window"]}, ["operator", "scale"]),
        ({"block.attention": ["operator", "scale"], "block": []}, ["operator", "scale"]),
        ({"block.attention": [THEIRS], "block": [THEIRS], "": ["window"]}, ["window"]),
        ({"block.attention": [THEIRS], "block": []}, [THEIRS]),
        ({"block.attention": [], "block": ["padding"]}, []),
        ({"block": ["padding"]}, ["padding"]),
        ({}, None),
    ],
)
def test_a_single_change_around_a_module_explains_more_than_several_in_it_or_another_mask(
    answers: dict[str, list[str]], expected: list[str] | None
) -> None:
    where = "block.attention"
    modules = SimpleNamespace(
        manifest=SimpleNamespace(modules={where: "attention", "block": "block"}), of_kind=lambda kind, step: {}
    )
    traces = cast(tuple[Trace, Trace], (modules, modules))
    experiment = Answered(None, (), Path(), CONTEXT, traces).found_by(answers)  # type: ignore[arg-type]
    question = Question(module="", tensor=Tensor(key="", module="", kind="returned"), innocent=[], own="", other="")

    def questions(one: Guilty) -> tuple[Question, Question]:
        module = "" if one.where == MODEL else one.where
        return replace(question, module=module), replace(question, module=module)

    def searched(is_first: bool) -> dict[str, list[Cause]]:
        stand_ins = {"is_behind": lambda first, module: False, "next_call": lambda first: None, "outputs": []}
        forward = [activation(where if is_first else "another")]
        place = cast(Asked, SimpleNamespace(questions=questions, forward=forward, **stand_ins))
        return experiment._searched(place, {where: Guilty(where, activation(where))})

    found = searched(is_first=False)
    assert [cause.id for cause in found[where]] == expected if expected is not None else where not in found
    if answers.get(where) == []:  # it does the same, and is given something else
        assert [cause.id for cause in searched(is_first=True)[where]] == answers["block"]


@pytest.mark.parametrize(("bias", "told"), [([0.3, -0.3], "weight"), ([0.3], "weight"), ([0.3, -0.2], "bias")])
def test_a_gradient_that_any_factor_fits_is_not_asked_about(bias: list[float], told: str, tmp_path: Path) -> None:
    gradients = {"gradient/bias": np.array(bias), "gradient/weight": np.arange(6.0)}
    traces = cast(tuple[Trace, Trace], (by_hand(tmp_path, tensors(gradients), "torch"), None))
    unequal = [Unequal(0, 0, "gradient", name) for name in ("bias", "weight")]
    assert telling(Parted("bias", "gradient", "bias", 0), unequal, traces).name == told
