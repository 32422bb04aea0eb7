"""One backend's half of an experiment: calls a module of the living model with other settings."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from parity.core import ownership, precision
from parity.core.arrays import Array, reproduced
from parity.core.errors import BackendError, UsageError
from parity.data.pairs import PairData
from parity.diagnose.experiment import knobs, masks, ops
from parity.diagnose.experiment.attempts import Attempts, ContradictionError, Trial, told_of
from parity.diagnose.experiment.candidates import STOPS
from parity.diagnose.experiment.knobs import SLICES, Knob
from parity.diagnose.experiment.live import Live
from parity.diagnose.experiment.operations import FIRST, LEFT_OUT, OF_LOSS, PADDING, ZERO_PADDING
from parity.diagnose.experiment.pieces import Evidence, evidences, passed
from parity.diagnose.experiment.search import FEWER, LEAST, Search
from parity.diagnose.experiment.settings import Known, Open, known_settings, values_to_try
from parity.diagnose.formula import NEEDED
from parity.runtime import experiment, survey
from parity.runtime.experiment import LATER, Change, Outcome, Question
from parity.runtime.job import ExperimentJob

# For each part of the search in one module: an argument, a place in the code, several layers alike, two changes.
SECONDS: Final = 2.0
MORE: Final = 72  # calls for the settings of a loss itself
IN_CODE: Final = ("function", "constant", "operator")  # kinds of changes that may as well leave something out
FEW: Final = 24  # calls that are made in each part, however long they take, where they include a backward pass


def study(job: ExperimentJob, open_: Open) -> None:
    """Answer the questions of a job, into its folder."""
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    torch = Path(job.pair.survey)
    initial, is_large = survey.Initial(torch), survey.read(torch).is_large
    given = PairData(job.case, job.pair.search).step(0)
    outcomes, attempts = list[Outcome](), Attempts(folder)

    def ask(questions: Sequence[Question]) -> Iterator[Outcome]:
        with open_(job, precision.HIGH, initial, given) as live:
            yield from _answers(questions if is_large else questions[:1], live, attempts)

    while len(outcomes) < len(job.questions):
        outcomes += ask(job.questions[len(outcomes) :])
    experiment.write(folder, outcomes)


def _answers(questions: Sequence[Question], live: Live, attempts: Attempts) -> Iterator[Outcome]:
    """Yield a model's answers, to the first question and to those behind it for which it does again what it did."""
    try:
        first = _answer(questions[0], live, attempts)
    except ContradictionError:  # where nothing was changed
        first = Outcome(problem="the model returns something else when it is called again", keeps_state=True)
    yield first
    for question in questions[1:]:
        if {questions[0].tensor.kind, question.tensor.kind} & set(LATER):
            return
        live.restore()
        outcome = _answer(question, live, attempts)
        if outcome.problem:
            return
        yield outcome


def _answer(question: Question, live: Live, attempts: Attempts) -> Outcome:
    if question.passed:
        return Outcome(harmless=live.harmless(list(passed(question))))
    for recorded in evidences(question):
        if not (problem := _problem(question, live, recorded)):
            break
    else:
        return Outcome(problem=problem)
    # Described are both sides with torch's inputs.
    may_exchange = recorded.tensors and (question.takes_theirs or not question.description)
    is_exchanged = bool(may_exchange) and live.exchange(recorded.tensors)
    if question.description:
        recording, given = live.recorded(), live.arguments()[0].values()
        ops.write(recording, Path(question.description), [live.array(each) for each in given if hasattr(each, "shape")])
        return Outcome()
    known = known_settings(question, live)
    if question.settings is None:
        return Outcome(settings=known.settings, named=known.by_name, masks=masks.told(live.arguments()[0], live.array))
    assert recorded.other
    known = known.beside(question.settings)
    theirs, is_forward = recorded.other.value, question.tensor.kind not in LATER
    is_number = is_forward and theirs.size == 1 and bool(theirs.any())
    if is_forward and not is_number and np.ptp(theirs) == 0:
        # A dropout of everything, an epsilon without end, a factor of 0: whatever makes an output vanish would do.
        problem = "the other side returns one number everywhere, as many settings do"
    elif question.tensor.kind == "gradient" and not theirs.any():
        problem = "the other side has no gradient, as many settings make it"
    if problem:
        return Outcome(settings=known.settings, problem=problem)
    call = _beside(live) if is_number or (is_forward and question.tensor.number) else live.replay
    values = values_to_try(question, live, known)
    search = Search(call, recorded.other, values, SECONDS, attempts, may_solve=not is_number)
    if not search.is_steady:  # then a change that does nothing may seem to reproduce the other side
        return Outcome(settings=known.settings, problem="the module does not return the same when it is called again")
    if is_exchanged and search.before >= NEEDED:
        return Outcome(settings=known.settings, same=True)
    if question.tensor.kind in LATER:
        return _later(question, search, known, live)
    exchanges = list(knobs.exchanges(known.named))
    if question.tried not in ("", question.module):
        live.leave_out(question.tried)
        inside, known = known.all, known_settings(question, live).beside(question.settings)
        around = set(map(knobs.place, known.all))
        search.besides = [knob for knob in inside if knobs.place(knob) not in around]
    return _forward(question, search, known, live, exchanges)


def _beside(live: Live) -> Callable[[], Array]:
    """Return the call that leaves as it is what is returned before, as of a single number, or of earlier calls."""
    live.replay()
    first = live.earlier()

    def call() -> Array:
        number = live.replay()
        earlier = live.earlier()
        if len(earlier) != len(first) or not all(map(reproduced, earlier, first)):
            raise ContradictionError("a change of the number alone leaves what is returned before it as it is")
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


def _forward(question: Question, search: Search, known: Known, live: Live, exchanges: Sequence[Knob]) -> Outcome:
    """Answer a question about what the module returns; `exchanges`: what two modules in it may have exchanged."""
    operations = live.operations()
    if question.lines:
        made = [knob for path in question.made for knob in known.all if knob.path == path]
        every = (*known.all, *operations, *live.moves())
        near = [knob for knob in every if knobs.is_near(knob.source, question.lines)]
        there = [*made, *(knob for knob in near if knob not in made)]
        return Outcome(settings=known.settings, found=search.found(there, least=FEWER))
    if question.given:
        return _besides(question, search, known, operations)
    known = known._replace(named=search.effective(known.named))
    together = list(knobs.joint(known.named))
    # What makes another mask explains more than that it is another. The sizes of weights come last, as both sides have
    # the same: a number that is computed of another size may happen to be right.
    others = [knob for knob in known.all if knobs.THEIRS in knob.words]
    sizes = [knob for knob in (*known.named, *together) if knob.is_size]
    apart = [*others, *sizes]
    named, in_code = ([knob for knob in each if knob not in apart] for each in (known.named, known.in_code))
    together = [knob for knob in together if not knob.is_size]
    also = [in_code] if question.module else []  # the code of a whole model can do anything
    groups = [named, others, operations, *also] if question.wider else [named, others, together, in_code, operations]
    groups += [sizes, [*exchanges, *live.moves()]]
    # Of several layers, all may be of another setting: then less is tried in each before all are changed together.
    least = LEAST // 2 if together else LEAST
    matches = search.found(*groups, pairs=not question.wider, least=least)
    if matches and all(change.kind in IN_CODE for each in matches for change in each.changes):
        # Another function or number may do it as well as none: a clamp is nothing for small numbers, and a mask of what
        # equals 30 hides nothing. Another number may be right for one width of a padding alone.
        said = [each for each in operations if LEFT_OUT in each.words or each.of == ZERO_PADDING]
        matches += search.found(said, pairs=False)
    return Outcome(settings=known.settings, found=matches)


def _besides(question: Question, search: Search, known: Known, operations: Sequence[Knob]) -> Outcome:
    """Answer the question what else has to be changed besides the changes that are given: nothing if they suffice."""
    bases = list(_bases(question.given, [*known.in_code, *operations, *knobs.joint(known.named), *known.named]))
    if not bases:
        return Outcome(problem="what is given is not found again")
    if any(map(search.reproduced, bases)):
        return Outcome(settings=known.settings, same=True)
    named = search.effective(known.named)
    further = [*operations, *knobs.joint(named), *named]
    matches = filter(None, (search.found(further, pairs=False, base=changes) for changes in bases))
    return Outcome(settings=known.settings, found=next(matches, []))


def _later(question: Question, search: Search, known: Known, live: Live) -> Outcome:
    """Answer a question about what comes after the forward pass."""
    settings, named, in_code = known.settings, known.named, known.in_code
    if search.before >= NEEDED:
        return Outcome(settings=settings, problem="this side does what the other does, given what the other was given")
    if question.given:
        bases = _bases(question.given, [*in_code, *knobs.joint(named), *named])
        return Outcome(settings=settings, same=any(map(search.reproduced, bases)))
    if question.lines:
        near = [each for each in (*in_code, *live.operations(), *named) if knobs.is_near(each.source, question.lines)]
        return Outcome(settings=settings, found=search.found(near, pairs=False, least=FEWER))
    own = _of_loss(known, live) if question.tensor.kind == "loss" else []
    if own and (matches := search.found(own, pairs=False, least=MORE)):
        return Outcome(settings=settings, found=matches)
    named = search.effective(named)
    groups = [named] if question.wider else [named, in_code, list(knobs.joint(named))]
    if question.tensor.kind == "loss":
        groups = [[knob for knob in each if knob not in own] for each in groups]
        groups.append([each for each in live.operations() if _may_be_of_loss(each)])
    if question.tensor.kind == "gradient":  # what stops a gradient does nothing else: it is tried first
        groups = [[knob for knob in (*in_code, *live.operations()) if knob.value in STOPS], *groups]
    pairs = any(knob.owner == SLICES for knob in named)
    return Outcome(settings=settings, found=search.found(*groups, pairs=pairs, least=FEW))


def _may_be_of_loss(operation: Knob) -> bool:
    """Return whether a loss may do an op in another way: it is left out, is one that losses have, or pads."""
    is_left_out = bool({FIRST, LEFT_OUT} & set(operation.words))
    return is_left_out or operation.of in OF_LOSS or operation.name == PADDING


def _of_loss(known: Known, live: Live) -> list[Knob]:
    """Return what is no part of the model, whose outputs agree: the settings of the loss and of what it calls.

    A model whose class is the user's own may compute its loss itself, by what it holds.
    """
    whole = live.arguments()[1].module
    files = (each.__code__.co_filename for each in vars(type(whole)).values() if inspect.isfunction(each))
    parts = [
        *([] if any(map(ownership.is_models, files)) else [whole]),
        *(owner.module for owner in live.owners() if owner.path),
    ]
    classes = {type(module).__name__ for module in parts}
    return [knob for knob in known.all if not knob.path and knob.owner.partition(".")[0] not in classes]


def _bases(given: Sequence[Change], settings: Sequence[Knob]) -> Iterator[tuple[Trial, ...]]:
    """Yield the changes that are given as those of settings of this process; nothing if one of them is not there.

    Then yield them as changes of all modules of their kind: those behind the module where one was found may need it.
    """
    matches = [next((knob for knob in settings if told_of(knob, each.after) == each), None) for each in given]
    base = tuple((knob, change.after) for knob, change in zip(matches, given, strict=True) if knob)
    if len(base) == len(given):
        yield base
        yield tuple(knobs.widened(trial, settings) for trial in base)
