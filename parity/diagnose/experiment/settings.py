"""The settings of a module of a living model, and the values to try for them."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

from parity.core import ownership
from parity.core.arrays import Array, Floats
from parity.core.groups import by_key
from parity.diagnose.experiment import candidates, code, knobs, masks, statements
from parity.diagnose.experiment.attempts import plain
from parity.diagnose.experiment.candidates import EQUATION, is_number, of_all_axes
from parity.diagnose.experiment.causes import NAMES
from parity.diagnose.experiment.executed import Executed, executed
from parity.diagnose.experiment.knobs import Knob
from parity.diagnose.experiment.live import Live
from parity.diagnose.experiment.operations import LEFT_OUT
from parity.runtime.experiment import LATER, Question
from parity.runtime.job import ExperimentJob

# The first two arguments of functions of the frameworks that a port may give in the other order.
FIRST_TWO: Final = tuple(
    f"({one}, {other})" for one, other in (
        ("y_true", "y_pred"), ("input", "target"), ("target", "output"), ("labels", "logits"), ("x1", "x2"),
        ("a", "b"), ("x", "y"), ("predictions", "targets"),
    )
)  # fmt: skip
# With no padding_idx and no ignore_index (PyTorch's default), without smoothing or clipping.
SWITCHED_OFF: Final[Mapping[type, Sequence[Any]]] = {int: (None, -100), float: (0.0, None)}
MOST_SIZES: Final = 2  # that are tried first
MOST_ALIKE: Final = 3  # values of the other side's settings of the same name that are tried before
# What stands in the code of the model that was run.
IN_CODE: Final = (
    statements.variables, statements.moved, statements.exchanged, code.slices, code.variables, code.constants,
    code.functions, code.operators,
)  # fmt: skip
Open = Callable[[ExperimentJob, str, Mapping[str, Floats], dict[str, Array]], AbstractContextManager[Live]]


class Known(NamedTuple):
    """The settings of a module: those with a name, those in its code, and all their values for the other side."""

    run: list[Executed]  # the functions that the module ran
    named: list[Knob]
    in_code: list[Knob]
    settings: list[Any]

    @property
    def all(self) -> list[Knob]:
        """Return the settings of both kinds."""
        return [*self.named, *self.in_code]

    @property
    def by_name(self) -> dict[str, list[Any]]:
        """Return the values of arguments and attributes, by the names that causes have for them."""
        names = ((NAMES.get(knob.name, knob.name), plain(knob.value)) for knob in self.named)
        return {
            name: [each for n, each in enumerate(all_) if each not in all_[:n]] for name, all_ in by_key(names).items()
        }

    def beside(self, theirs: Sequence[Any]) -> "Known":
        """Return the settings, first the numbers that are none of the other side's: one of them is likelier wrong."""

        def is_shared(knob: Knob) -> bool:
            return not is_number(knob.value) or plain(knob.value) in theirs

        return self._replace(named=sorted(self.named, key=is_shared), in_code=sorted(self.in_code, key=is_shared))


def known_settings(question: Question, live: Live) -> Known:
    """Return what can be changed in the module, which is called for it."""
    run, read = executed(live.replay, ownership.is_models, live.is_paused)
    in_graphs = live.graph_settings(read, question.masks)
    named = [*_named(live, run, read), *(knob for knob in in_graphs if knob.kind == "attribute")]
    named += [*masks.knobs(*live.arguments(), question.masks, live.array, live.like), *knobs.tensors(*live.arguments())]
    own = [each for each in run if each.is_models]
    found = ((each, knob) for find in IN_CODE for each in own for knob in find(each))
    in_code = [knob for each, knob in found if knob.kind == "variable" or each.is_at(knob.source)]
    in_code += [
        knob for each in run if not each.is_models for knob in statements.exchanged(each) if knob.value in FIRST_TWO
    ]
    in_code += [knob for knob in in_graphs if knob.kind != "attribute"]
    values = [plain(knob.value) for knob in (*named, *in_code)]
    settings = [
        value for value in values if not isinstance(value, str) or knobs.WORD.fullmatch(value) or value in code.BINARY
    ]
    settings += dict.fromkeys(value for owner in live.owners() for value in knobs.configured(owner))
    settings += [each for each in live.numbers() if each not in settings]
    settings += [type(owner.module).__name__.lower() for owner in live.owners()]  # ELU has the function elu
    return Known(list(run), named, in_code, settings)


def values_to_try(question: Question, live: Live, known: Known) -> Callable[[Knob], Sequence[Any]]:
    """Return the function that returns the values to try for a setting."""
    # What the other side alone has is the likeliest.
    theirs = sorted(question.settings or [], key=known.settings.__contains__)
    words, own = [text for text in theirs if isinstance(text, str) and text not in code.BINARY], known.by_name
    alone = [value for value in theirs if value not in known.settings]  # among them operators
    around = [word for each in known.run for word in knobs.words(each.function.__code__)]

    def values(knob: Knob) -> Sequence[Any]:
        likely = [*(word for word in words if word in knob.words), *knob.words, *words, *around]
        # The first values are tried of all settings. A setting that a port gives may have been left to its default.
        usual = [live.functions.get(each, each) if knob.kind == "callable" else each for each in knob.defaults]
        usual = [each for each in usual if each != knob.value]
        others = _values(knob, theirs, likely, live.functions)
        others = sorted(others, key=lambda each: knob.kind != "operator" or each not in alone)
        # Sizes that the other side alone has, the nearest first: a dilation is likelier another one than the padding.
        sizes = [each for each in others if isinstance(each, (tuple, list)) and plain(each) not in known.settings]
        sizes.sort(key=lambda size: _distance(size, knob.value))
        siblings = [*_switched_off(knob, question.tensor.kind), *knobs.of_siblings(knob, known.named)]
        alike = _of_its_name(knob, others, question.named, own)
        first = [*alike, *(each for each in (*sizes[:MOST_SIZES], *siblings, *usual) if each not in alike)]
        return [*first, *(each for each in others if each not in first)]

    return values


def _of_its_name(
    knob: Knob, values: Sequence[Any], theirs: Mapping[str, Sequence[Any]], own: Mapping[str, Sequence[Any]]
) -> list[Any]:
    """Return the values that the other side has under the setting's name, first those that this side has not."""
    name = NAMES.get(knob.name, knob.name)
    there = [form for each in theirs.get(name, ()) for form in (each, of_all_axes(each))]
    alike = [each for each in values if is_number(each) or isinstance(each, (str, tuple, list))]
    alike = [each for each in alike if plain(each) in there]
    return sorted(alike, key=lambda each: plain(each) in own.get(name, ()))[:MOST_ALIKE]


def _distance(size: Sequence[Any], own: Any) -> float:
    pairs = list(zip(size, own, strict=False)) if isinstance(own, (tuple, list)) else []
    return sum(abs(each - value) if is_number(each) and is_number(value) else math.inf for each, value in pairs)


def _named(live: Live, run: Sequence[Executed], read: Collection[str]) -> Iterator[Knob]:
    """Yield the settings of the module that have a name of their own: arguments and attributes."""
    yield from live.precisions()
    yield from knobs.arguments(*live.arguments())
    owners = live.owners()
    for owner in (*owners[:1], *reversed(owners[1:])):  # then what was called last before the tensor was made
        yield from knobs.attributes(owner, read, live.base)
    for each in run:
        if ownership.owner(each.file) not in ("own", "standard"):
            yield from code.defaults(each)


def _values(
    knob: Knob, theirs: Sequence[Any], words: Sequence[str], functions: Mapping[str, Callable[..., Any]]
) -> Sequence[Any]:
    if knob.value == knobs.AS_GIVEN or knob.kind in ("precision", "operation", statements.KIND, statements.VARIABLE):
        return list(knob.words)
    if knob.kind == "function":
        forms = [functions[form] for form in candidates.FORMS.get(knob.name, ()) if form in functions]
        return sorted([*forms, *knob.words], key=lambda form: form != LEFT_OUT)
    if knob.kind == "slice":
        return [text for text in candidates.SLICES if text != knob.value]
    if knob.kind == "operator":
        return code.signs(knob.value)
    if isinstance(knob.value, str) and not (knobs.WORD.fullmatch(knob.value) or EQUATION.fullmatch(knob.value)):
        return []  # a format, a message
    names = (*theirs, *candidates.IDENTITIES)
    known = {name: functions[name] for name in names if isinstance(name, str) and name in functions}
    return candidates.candidates(knob.value, theirs, dict.fromkeys(words), known | dict(functions))


def _switched_off(knob: Knob, kind: str) -> Sequence[Any]:
    """Return the values with which a term of a loss, a gradient or an update is left out; first comes another axis."""
    value = knob.value
    other_axis = (1 - value,) if knob.kind == "constant" and type(value) is int and value in (0, 1) else ()
    return (*other_axis, *SWITCHED_OFF.get(type(value), ())) if kind in LATER else ()
