"""Causes in the optimizer: its constants, conventions and schedule, found by replaying a parameter's updates.

What an optimizer of the user's own is configured with is not known, nor what its state is called. So its updates alone
are explained, by the formula of SGD or Adam, and several parameters must follow from the same settings.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from parity.config import schema
from parity.config.pair import SPARSE
from parity.core.arrays import reproduced
from parity.diagnose import entries, explain, optimizer_steps, solve
from parity.diagnose.explain import Change
from parity.diagnose.formula import Formula, Settings, Trait, choices, choices_if, require, usually
from parity.diagnose.optimizer_steps import DECAY, DIRECTION, Rule, replay
from parity.diagnose.topic import Question, Side, Sides, most_informative
from parity.diagnose.updates import Updates, explains, observe
from parity.results import Cause
from parity.trace import keys
from parity.trace.manifest import Trace
from parity.verdict.traces import Unequal

AVERAGES: Final = (0.0, 0.5, 0.9, 0.95, 0.99, 0.999)
NO_SCHEDULE: Final = schema.Schedule(every=1, factor=1.0)
EPSILONS: Final = ("after the correction", "before the correction", "inside the root")  # where it is added
DECAY_FORMS: Final = ("coupled", "decoupled", "decoupled, after the step", "decoupled, not times the rate")
SMALL: Final = tuple(factor * 10.0**power for power in range(-12, 0) for factor in (1.0, 3.0))  # to begin with
BETAS: Final = (0.999, 0.99)  # of Adam's second moment, to begin with
RATE: Final = "learning_rate"  # recorded as state of the optimizer: it follows from the settings as well
TRIED: Final = 3  # parameters for which an explanation is looked for
NEEDED: Final = 3  # parameters that must follow from the same settings, if so many differ


def questions(sides: Sides) -> Iterator[Question]:
    """Ask what the optimizer made of its own recorded gradients."""
    if len({len(set(side.trace.manifest.training.waiting)) for side in sides.both}) > 1:
        return  # other numbers of updates have nothing in common
    differing = sides.of(keys.UPDATE, "optimizer_state")
    names = {tensor.parameter: tensor for tensor in reversed(differing)}
    known = [question for name in reversed(names) if name and (question := _known(sides, names[name], name))]
    yield from known
    for tensor in most_informative(sides, [tensor._replace(name=name) for name, tensor in names.items() if name]):
        if not known:
            both = [observe(side, tensor.name, tensor.replica) for side in sides.both]
            yield Question(keys.UPDATE, tensor.name, formula(sides.reference.case), both)


def _known(sides: Sides, tensor: Unequal, name: str) -> Question | None:
    """Return the question about a parameter whose updates follow from what both optimizers state, with its answer."""
    reference, candidate = (observe(side, name, tensor.replica) for side in sides.both)
    if reference is None or candidate is None or reference.settings is None:
        return None
    kind = str(reference.settings.get(KIND.name))
    named = FORMULAS.get("adamw" if kind == "adam" and reference.settings.get("decay_form") == "decoupled" else kind)
    if named is None:
        return None
    answer = explain.guarded(lambda: optimizer_steps.explained_by_settings(named, reference, candidate))
    is_own = any(side.trace.manifest.training.own_step for side in sides.both)
    if answer and is_own and not reproduced(candidate.gradients[0], reference.gradients[0]):
        # The user's step may have added a weight decay to its gradients.
        changes = tuple(each for each in answer.changes if not _is_one_sided_decay(each))
        answer = answer._replace(changes=changes, same=answer.same or (bool(answer.changes) and not changes))
    return Question(keys.UPDATE, name, named, (reference, candidate), answer=answer) if answer else None


def _is_one_sided_decay(change: Change) -> bool:
    return change.trait == DECAY and 0 in (change.reference, change.candidate)


def _check(updates: Updates) -> None:
    shapes = {gradient.shape for gradient in updates.gradients}
    require(shapes == {updates.initial.shape}, "gradients of the parameter's shape")
    require(updates.initial.dtype.kind != "b", "numbers")
    rate = updates.seen.get("learning_rate@0")
    require(rate is None or rate.value.shape == (), "a learning rate that is one number")


def _configured(updates: Updates, name: str) -> Any:
    """Return a setting of the case's optimizer; that of PyTorch's default if the case has none."""
    return getattr(updates.case.optimizer, name, getattr(Rule(), name))


def _constant(setting: str, cause: str, starts: tuple[float, ...] = (), slot: str = "") -> Trait[Updates]:
    """Return a trait for a constant: the configured value, or zero, or the value that fits the recording best.

    `cause`: the id to report. `starts`: further values to start solving from. `slot`: prefix of the slots that depend
    on this constant alone; it is fitted to those first, then to all.
    """

    def values(updates: Updates, settings: Settings) -> Iterator[float]:
        configured = float(_configured(updates, setting))
        yield configured
        yield 0.0
        for among in (slot, "") if slot else ("",):
            yield from solve.constant(replay, updates, settings, setting, (configured, *starts), among)

    return Trait(setting, cause, values)


def _rates(updates: Updates, settings: Settings) -> Iterator[float]:
    """Yield the learning rate that is configured, that was recorded, and that the updates imply."""
    configured = float(updates.case.optimizer.learning_rate)
    yield configured
    recorded = updates.seen.get("learning_rate@0")
    expected = replay(updates, **{**settings, "learning_rate": 1.0})["learning_rate@0"]
    if recorded is not None and expected:
        yield float(recorded.value / expected)
    yield from solve.constant(replay, updates, settings, "learning_rate", (configured,))


def _everies(updates: Updates, settings: Settings) -> Iterable[int]:
    others = range(1, len(updates.gradients) + 1) if updates.case.schedule else ()
    return (updates.case.schedule or NO_SCHEDULE).every, *others


def _factors(updates: Updates, settings: Settings) -> Iterator[float]:
    yield (updates.case.schedule or NO_SCHEDULE).factor
    if updates.case.schedule:
        yield from solve.constant(replay, updates, settings, "factor", (1.0, 0.5, 0.1))


def _dampenings(updates: Updates, settings: Settings) -> Iterator[float]:
    yield 0.0
    yield settings["momentum"]
    yield from solve.constant(replay, updates, settings, "dampening", (0.0, 0.5))


SHARED: Final[tuple[Trait[Updates], ...]] = (
    Trait("frozen", "update.frozen", choices("no", "parameter and optimizer state", "parameter only")),
    Trait("sign", "update.sign", choices(1, -1)),
    Trait("precision", "constant.precision", choices("float64", "all", "rate", "betas", "decay")),
    Trait("offset", "schedule.offset", choices_if(lambda updates: bool(updates.case.schedule), 0, 1, -1)),
    Trait("every", "schedule.every", _everies),
    Trait("factor", "schedule.factor", _factors),
    Trait(
        "decay_form",
        "weight_decay.form",
        usually(lambda updates: DECAY_FORMS[isinstance(updates.case.optimizer, schema.AdamW)], *DECAY_FORMS),
    ),
    # Some programs leave biases and norms out.
    Trait(
        "decayed", "weight_decay.excludes_bias", choices_if(lambda updates: updates.initial.ndim < 2, "all", "matrices")
    ),
    Trait("gradient", SPARSE, lambda updates, _: ("IndexedSlices", "dense") if updates.squares else ("dense",)),
)
SGD: Final[tuple[Trait[Updates], ...]] = (
    Trait("momentum_form", "sgd.momentum_form", choices(*DIRECTION)),
    Trait("nesterov", "sgd.nesterov", usually(lambda updates: _configured(updates, "nesterov"), False, True)),
    Trait("learning_rate", "sgd.learning_rate", _rates),
    _constant("weight_decay", "weight_decay.value"),
    _constant("momentum", "sgd.momentum", AVERAGES, "momentum_buffer@"),
    Trait("dampening", "sgd.dampening", _dampenings),
    Trait("first", "sgd.dampening", choices("undamped", "damped")),
)
ADAM: Final[tuple[Trait[Updates], ...]] = (
    Trait("beta_precision", "adam.beta_precision", choices("float64", "float32", "float32 powers")),
    Trait("epsilon_placement", "adam.epsilon_placement", choices(*EPSILONS)),
    Trait("bias_correction", "adam.bias_correction", choices("both", "none", "first", "second")),
    Trait("amsgrad", "adam.amsgrad", choices(False, True)),
    Trait("counted", "adam.step", choices(1, 2)),
    Trait("learning_rate", "adam.learning_rate", _rates),
    _constant("weight_decay", "weight_decay.value"),
    _constant("epsilon", "adam.epsilon", SMALL),
    _constant("beta1", "adam.beta1", AVERAGES, "exp_avg@"),
    _constant("beta2", "adam.beta2", AVERAGES, "exp_avg_sq@"),
)


def _stated(kind: str, *names: str) -> tuple[Trait[Updates], ...]:
    """Return the traits of an optimizer's stated settings, each its own cause."""
    return (
        Trait("momentum_form", "sgd.momentum_form", choices("rate outside")),
        Trait("learning_rate", f"{kind}.learning_rate", _rates),
        Trait("weight_decay", "weight_decay.value", choices(0.0)),
        *(Trait(name, f"{kind}.{name}", choices(getattr(Rule(), name))) for name in names),
    )


KIND: Final[Trait[Updates]] = Trait(
    "kind",
    "optimizer.kind",
    usually(lambda updates: "sgd" if isinstance(updates.case.optimizer, schema.SGD) else "adam", "sgd", "adam"),
)
# Of these, stated settings are compared, and none is searched for.
STATED: Final = {
    "rmsprop": ("rho", "momentum", "centered", "epsilon", "epsilon_placement"),
    "adagrad": ("accumulator", "rate_decay", "epsilon", "epsilon_placement"),
    "adadelta": ("rho", "epsilon"),
    "adamax": ("beta1", "beta2", "epsilon", "epsilon_placement"),
    "nadam": ("beta1", "beta2", "epsilon", "momentum_decay"),
}
ADAMW: Final = tuple(
    trait._replace(cause="adamw.weight_decay") if trait.cause == "weight_decay.value" else trait for trait in ADAM
)
FORMULAS: Final = {
    "sgd": Formula(replay, (*SHARED, *SGD, KIND), _check),
    "adam": Formula(replay, (*SHARED, *ADAM, KIND), _check),
    "adamw": Formula(replay, (*SHARED, *ADAMW, KIND), _check),
    **{kind: Formula(replay, (*SHARED, *_stated(kind, *names), KIND), _check) for kind, names in STATED.items()},
}


def formula(case: schema.Case) -> Formula[Updates]:
    """Return the formula of the case's optimizer."""
    return FORMULAS[type(case.optimizer).__name__.lower()]


def explained_updates(reference: Trace, candidate: Trace, names: Sequence[str]) -> tuple[list[Cause], frozenset[str]]:
    """Return in what updates of the named parameters differ, if a formula explains both sides, and whose follow."""
    sides = Side("torch", reference), Side("keras", candidate)
    starts = ((name, optimizer) for name in names[:TRIED] for optimizer in _optimizers_to_try(sides, name))
    for name, optimizer in starts:
        ask = _question(sides, name, optimizer)
        answer = explain.compare(ask.formula, *ask.both) if ask else None
        if not (ask and answer and answer.changes and answer.settings):
            continue
        questions = (question for each in names if (question := _question(sides, each, optimizer)))
        follow = [question.where for question in questions if explains(question, answer.settings)]
        if len(follow) >= min(NEEDED, len(names)):
            # The form of a weight decay that only one side has is no cause of its own.
            ignored = "decay" if any(map(_is_one_sided_decay, answer.changes)) else ()
            changes = [change for change in answer.changes if not change.trait.startswith(ignored)]
            return [entries.cause(ask, change, ("torch", "keras")) for change in changes], frozenset([*follow, RATE])
    return [], frozenset()


def _optimizers_to_try(sides: tuple[Side, Side], name: str) -> Iterator[schema.Optimizer]:
    """Yield the optimizers to begin with, with the learning rates that were recorded, or that Adam would have."""
    recorded = (side.tensors(0).get(keys.key("optimizer_state", RATE)) for side in sides)
    rates = [float(rate) for rate in recorded if rate is not None]
    if observed := observe(sides[0], name):
        first = observed.seen.get(f"{keys.UPDATE}@0")
        steps = np.abs(first.value) if first else np.zeros(0)
        rates += [float(np.median(steps[steps > 0]))] if steps.any() else []
    for rate in dict.fromkeys(rate for rate in rates if 0 < rate < np.inf):
        for betas in BETAS:
            yield schema.Adam(learning_rate=rate, beta2=betas)
        yield schema.SGD(learning_rate=rate)


def _question(sides: tuple[Side, Side], name: str, optimizer: schema.Optimizer) -> Question | None:
    """Return the question about a parameter's updates, without the optimizer's state; None where a side lacks them."""
    both = []
    for updates in (observe(side, name) for side in sides):
        if updates is None:
            return None
        case = msgspec.structs.replace(updates.case, optimizer=optimizer, schedule=NO_SCHEDULE)
        seen = {key: value for key, value in updates.seen.items() if key.startswith(keys.UPDATE)}
        both.append(updates._replace(seen=seen, case=case))
    return Question(keys.UPDATE, name, formula(both[0].case), both)
