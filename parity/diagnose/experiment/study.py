"""One backend's half of an experiment: calls a module of the living model with other settings."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from parity.core import precision
from parity.core.arrays import Array, Floats, reproduced
from parity.core.errors import BackendError, UsageError
from parity.data.pairs import PairData
from parity.diagnose.experiment import code, knobs, masks, ops
from parity.diagnose.experiment.attempts import Attempts, plain, told_of
from parity.diagnose.experiment.candidates import EQUATION, STOPS, alternatives, candidates, is_number
from parity.diagnose.experiment.executed import Executed, executed
from parity.diagnose.experiment.knobs import SLICES, Knob, Owner
from parity.diagnose.experiment.operations import LEFT_OUT
from parity.diagnose.experiment.ops import Recording
from parity.diagnose.experiment.pieces import Evidence, evidence
from parity.diagnose.experiment.search import LEAST, Found, Search, Trial
from parity.diagnose.formula import NEEDED
from parity.runtime.job import ExperimentJob
from parity.trace import experiment, survey
from parity.trace.experiment import LATER, Change, Mask, Outcome, Question

# For each part of the search in one module: an argument, a place in the code, several layers alike, two changes.
SECONDS: Final = 3.0
FEW: Final = 24  # calls that are made in each part, however long they take, where they include a backward pass
# With no padding_idx and no ignore_index (PyTorch's default), without smoothing or clipping.
SWITCHED_OFF: Final[Mapping[type, Sequence[Any]]] = {int: (None, -100), float: (0.0, None)}


class Live(Protocol):
    """A built model with its weights, of which one module can be called again as in the first forward pass."""

    functions: Mapping[str, Callable[..., Any]]
    base: type

    def take(self, question: Question, evidence: Evidence) -> bool:
        """Keep the call of the question's module that makes the question's tensor, and return whether it was seen.

        Calling it again returns what was recorded, unless the module is no function of its arguments.
        """

    def exchange(self, tensors: Sequence[tuple[Array, Array]]) -> bool:
        """Let the module be called with what the other side's was given, and return whether that is something else.

        `tensors`: pairs of a tensor of this side and the other side's, in torch's axes, among them the inputs.
        """

    def replay(self) -> Array:
        """Call the module again, and return the question's tensor in torch's axes."""

    def earlier(self) -> list[Array]:
        """Return what the module, when it was called last, returned before the question's tensor."""

    def array(self, tensor: Any) -> Array:
        """Return the numbers of a tensor."""

    def like(self, array: Array, tensor: Any) -> Any:
        """Return a tensor of an array's numbers, of the type of another tensor."""

    def owners(self) -> list[Owner]:
        """Return the module and those in it that were called before the tensor was made, without the innocent ones."""

    def arguments(self) -> tuple[dict[str, Any], Owner]:
        """Return the arguments with which the module is called again, which may be changed, and the module."""

    def recorded(self) -> Recording:
        """Return the ops that the module executes when it is called again."""

    def precisions(self) -> list[Knob]:
        """Return the settings of the framework itself that decide at which precision it computes."""

    def operations(self) -> list[Knob]:
        """Return the ops of the call that can be done in another way."""

    def graph_settings(self, read: Collection[str], theirs: Sequence[Mask]) -> list[Knob]:
        """Return the settings of operations in graphs: the code that made them runs no more when the module is called.

        `read`: the names that the code which is run refers to. `theirs`: the masks that the other side's is given.
        """

    def is_paused(self) -> bool:
        """Return whether a module that returns the same on both sides is being called."""

    def is_models(self, file: str) -> bool:
        """Return whether a file belongs to the code of models, rather than to a framework, Python or this project."""


Open = Callable[[ExperimentJob, str, Mapping[str, Floats], dict[str, Array]], AbstractContextManager[Live]]


def study(job: ExperimentJob, open_: Open) -> None:
    """Answer the questions of a job, into its folder."""
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    initial = survey.Initial(Path(job.pair.survey))
    given = PairData(job.case, job.pair.search).step(0)
    outcomes, attempts = [], Attempts(folder)
    for question in job.questions:
        with open_(job, precision.HIGH, initial, given) as live:
            outcomes.append(_answer(question, live, attempts))
    experiment.write(folder, outcomes)


class _Known(NamedTuple):
    """The settings of a module: those with a name, those in its code, and all their values for the other side to try.

    `run`: the functions that the module ran.
    """

    run: list[Executed]
    named: list[Knob]
    in_code: list[Knob]
    settings: list[Any]

    @property
    def all(self) -> list[Knob]:
        """Return the settings of both kinds."""
        return [*self.named, *self.in_code]

    def beside(self, theirs: Sequence[Any]) -> "_Known":
        """Return the settings, first the numbers that are none of the other side's: one of them is likelier wrong."""

        def is_shared(knob: Knob) -> bool:
            return not is_number(knob.value) or plain(knob.value) in theirs

        return self._replace(named=sorted(self.named, key=is_shared), in_code=sorted(self.in_code, key=is_shared))


def _answer(question: Question, live: Live, attempts: Attempts) -> Outcome:
    recorded = evidence(question)
    if problem := _problem(question, live, recorded):
        return Outcome(problem=problem)
    # Described are both sides with torch's inputs.
    may_exchange = recorded.tensors and (question.takes_theirs or not question.description)
    is_exchanged = bool(may_exchange) and live.exchange(recorded.tensors)
    if question.description:
        _describe(question, live)
        return Outcome()
    known = _known(question, live)
    if question.settings is None:
        return Outcome(settings=known.settings, masks=list(masks.told(live.arguments()[0], live.array)))
    assert recorded.other
    known = known.beside(question.settings)
    theirs, is_forward = recorded.other.value, question.tensor.kind not in LATER
    is_number = is_forward and theirs.size == 1 and bool(theirs.any())
    if is_forward and not is_number and np.ptp(theirs) == 0:
        # A dropout of everything, an epsilon without end, a factor of 0: whatever makes an output vanish would do.
        problem = "the other side returns one number everywhere, as many settings do"
        return Outcome(settings=known.settings, problem=problem)
    values = _tried(question, live, known)
    call = _beside(live) if is_number else live.replay
    search = Search(call, recorded.other, values, SECONDS, attempts, may_solve=not is_number)
    if is_exchanged and search.before >= NEEDED:
        return Outcome(settings=known.settings, same=True)
    if question.tensor.kind in LATER:
        return _later(question, search, known, live)
    return _forward(question, search, known, live.operations())


def _beside(live: Live) -> Callable[[], Array]:
    """Return the call of a module for a single number; what was returned before it must stay as it is.

    Both sides agree on that, and the number alone is little evidence.
    """
    live.replay()
    first = live.earlier()

    def call() -> Array:
        number = live.replay()
        earlier = live.earlier()
        if len(earlier) != len(first) or not all(map(reproduced, earlier, first)):
            raise LookupError("a change of the number alone leaves what is returned before it as it is")
        return number

    return call


def _problem(question: Question, live: Live, recorded: Evidence) -> str:
    """Make the module ready to be called again; return why it cannot be, or ""."""
    if recorded.own is None or recorded.other is None:
        return "the tensor was not recorded"
    try:
        if not live.take(question, recorded):
            return "the module does not make the tensor when it is called again"
    except (UsageError, BackendError) as error:
        return str(error)
    return ""


def _known(question: Question, live: Live) -> _Known:
    """Return what can be changed in the module, which is called for it."""
    run, read = executed(live.replay, live.is_models, live.is_paused)
    in_graphs = live.graph_settings(read, question.masks)
    named = [*_named(live, run, read), *(knob for knob in in_graphs if knob.kind == "attribute")]
    named += [*masks.knobs(*live.arguments(), question.masks, live.array, live.like), *knobs.tensors(*live.arguments())]
    in_code = [*_in_code(run), *(knob for knob in in_graphs if knob.kind != "attribute")]
    values = [plain(knob.value) for knob in (*named, *in_code)]
    settings = [value for value in values if not isinstance(value, str) or knobs.WORD.fullmatch(value)]
    settings += dict.fromkeys(value for owner in live.owners() for value in knobs.configured(owner))
    settings += [type(owner.module).__name__.lower() for owner in live.owners()]  # ELU has the function elu
    return _Known(list(run), named, in_code, settings)


def _tried(question: Question, live: Live, known: _Known) -> Callable[[Knob], Sequence[Any]]:
    """Return the function that returns the values to try for a setting."""
    # What the other side alone has is the likeliest.
    theirs = sorted(question.settings or [], key=known.settings.__contains__)
    words = [text for text in theirs if isinstance(text, str)]
    around = [word for each in known.run for word in knobs.words(each.function.__code__)]

    def values(knob: Knob) -> Sequence[Any]:
        likely = [*(word for word in words if word in knob.words), *knob.words, *words, *around]
        # The first values are tried of all settings. A setting that a port gives may have been left to its default.
        usual = [live.functions.get(each, each) if knob.kind == "callable" else each for each in knob.defaults]
        usual = [each for each in usual if each != knob.value]
        first = [*_switched_off(knob, question.tensor.kind), *knobs.of_siblings(knob, known.named), *usual]
        return [*first, *(each for each in _values(knob, theirs, likely, live.functions) if each not in first)]

    return values


def _forward(question: Question, search: Search, known: _Known, operations: Sequence[Knob]) -> Outcome:
    """Answer a question about what the module returns; `operations`: other ways to carry out its operations."""
    together = list(knobs.joint(known.named))
    if question.lines:
        there = [knob for knob in (*known.all, *operations) if knobs.is_near(knob, question.lines)]
        return Outcome(settings=known.settings, found=[_told(each) for each in search.found(there)], tried=len(there))
    if question.given:
        return _besides(question, search, known, [*operations, *together, *known.named])
    # What makes another mask explains more than that it is another. The sizes of weights come last, as both sides have
    # the same: a number that is computed of another size may happen to be right.
    others = [knob for knob in known.all if knobs.THEIRS in knob.words]
    sizes = [knob for knob in (*known.named, *together) if knob.is_size]
    apart = [*others, *sizes]
    named, in_code = ([knob for knob in each if knob not in apart] for each in (known.named, known.in_code))
    together = [knob for knob in together if not knob.is_size]
    near = [in_code] if question.module else []  # the code of a whole model can do anything
    groups = [named, others, operations, *near] if question.wider else [named, others, together, in_code, operations]
    groups.append(sizes)
    # Of several layers, all may be of another setting: then less is tried in each before all are changed together.
    found = search.found(*groups, pairs=not question.wider, least=LEAST // 2 if together else LEAST)
    if found and all(knob.kind in ("function", "constant") for each in found for knob, _ in each.changes):
        # Another function or number may do it as well as none: a clamp is nothing for small numbers, and a mask of what
        # equals 30 hides nothing.
        found += search.found([each for each in operations if LEFT_OUT in each.words], pairs=False)
    return Outcome(settings=known.settings, found=[_told(each) for each in found], tried=len(known.all))


def _besides(question: Question, search: Search, known: _Known, further: Sequence[Knob]) -> Outcome:
    """Answer the question what else has to be changed besides the changes that are given: nothing if they suffice.

    A change that was found at one module is tried at all modules of its kind as well: those behind it may need it too.
    """
    base = _base(question.given, [*known.in_code, *further])
    if base is None:
        return Outcome(problem="what is given is not found again")
    if search.reproduced(base):
        return Outcome(settings=known.settings, same=True)
    found = search.found(further, pairs=False, base=base)
    if not found:
        base = tuple(knobs.widened(trial, further) for trial in base)
        if search.reproduced(base):
            return Outcome(settings=known.settings, same=True)
        found = search.found(further, pairs=False, base=base)
    return Outcome(settings=known.settings, found=[_told(each) for each in found], tried=len(known.all))


def _later(question: Question, search: Search, known: _Known, live: Live) -> Outcome:
    """Answer a question about what comes after the forward pass."""
    settings, named, in_code = known.settings, known.named, known.in_code
    if search.before >= NEEDED:
        return Outcome(settings=settings, problem="this side does what the other does, given what the other was given")
    if question.given:
        return Outcome(settings=settings, same=_suffices(question.given, search, known))
    groups = [named] if question.wider else [named, in_code, list(knobs.joint(named))]
    if question.tensor.kind == "loss":
        own = _of_loss(known, live)
        groups = [own, *([knob for knob in each if knob not in own] for each in groups)]
    if question.tensor.kind == "gradient":  # what stops a gradient does nothing else: it is tried first
        groups = [[knob for knob in in_code if knob.value in STOPS], *groups]
    found = search.found(*groups, pairs=any(knob.owner == SLICES for knob in named), least=FEW)
    return Outcome(settings=settings, found=[_told(each) for each in found], tried=len(named) + len(in_code))


def _of_loss(known: _Known, live: Live) -> list[Knob]:
    """Return what is no part of the model, whose outputs agree: the settings of the loss and of what it calls."""
    whole = live.arguments()[1]
    parts = [whole.module, *(owner.module for owner in live.owners() if owner.path)]
    classes = {type(module).__name__ for module in parts}
    return [knob for knob in known.all if not knob.path and knob.owner.partition(".")[0] not in classes]


def _suffices(given: Sequence[Change], search: Search, known: _Known) -> bool:
    """Return whether changes reproduce the other side, in their modules or in all modules of their kinds."""
    settings = [*known.in_code, *knobs.joint(known.named), *known.named]
    if (base := _base(given, settings)) is None:
        return False
    return search.reproduced(base) or search.reproduced(tuple(knobs.widened(trial, settings) for trial in base))


def _told(found: Found) -> experiment.Found:
    """Return changes that reproduce the other side as the parent process reads them."""
    changes = [told_of(knob, value) for knob, value in found.changes]
    return experiment.Found(changes=changes, bits=found.bits, before=found.before)


def _base(given: Sequence[Change], found: Sequence[Knob]) -> tuple[Trial, ...] | None:
    """Return the changes that are given, of settings of this process; None if one of them is not there."""
    base = []
    for change in given:
        knob = next((knob for knob in found if told_of(knob, change.after) == change), None)
        if knob is None:
            return None
        base.append((knob, change.after))
    return tuple(base)


def _describe(question: Question, live: Live) -> None:
    """Write what the module executes."""
    ops.write(live.recorded(), Path(question.description))


def _named(live: Live, run: Sequence[Executed], read: Collection[str]) -> Iterator[Knob]:
    """Yield the settings of the module that have a name of their own: arguments and attributes."""
    yield from live.precisions()
    yield from knobs.arguments(*live.arguments())
    for owner in live.owners():
        yield from knobs.attributes(owner, read, live.base)
    for each in run:
        yield from code.defaults(each)


def _in_code(run: Sequence[Executed]) -> Iterator[Knob]:
    """Yield what stands in the code of the model that was run."""
    own = [each for each in run if each.is_models]
    for find in (code.variables, code.constants, code.functions, code.operators):
        for each in own:
            yield from find(each)


def _values(
    knob: Knob, theirs: Sequence[Any], words: Sequence[str], functions: Mapping[str, Callable[..., Any]]
) -> Sequence[Any]:
    if knob.value == knobs.AS_GIVEN or knob.kind in ("precision", "operation"):
        return list(knob.words)
    if knob.kind == "function":
        return [*alternatives(knob.name), *knob.words]
    if knob.kind == "operator":
        return code.signs(knob.value)
    if isinstance(knob.value, str) and not (knobs.WORD.fullmatch(knob.value) or EQUATION.fullmatch(knob.value)):
        return []  # a format, a message
    known = {name: functions[name] for name in theirs if isinstance(name, str) and name in functions}
    return candidates(knob.value, theirs, dict.fromkeys(words), known | dict(functions))


def _switched_off(knob: Knob, kind: str) -> Sequence[Any]:
    """Return the values with which a term of a loss, a gradient or an update is left out; first comes another axis."""
    value = knob.value
    other_axis = (1 - value,) if knob.kind == "constant" and type(value) is int and value in (0, 1) else ()
    return (*other_axis, *SWITCHED_OFF.get(type(value), ())) if kind in LATER else ()
