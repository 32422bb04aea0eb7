"""Replay the steps of optimizers on recorded gradients, under all conventions that the frameworks use.

Optimizers of the frameworks' own have their settings recorded: where both sides' updates follow from what they state,
nothing is searched for. A setting is a cause if the candidate's updates no longer follow when it is the reference's.
A class that is derived from a framework's may do in some respects what the reference does, whatever it states.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from parity.core.arrays import Array
from parity.diagnose.explain import Change, Explained
from parity.diagnose.formula import NEEDED, Formula, Settings, reproduced_bits, require
from parity.diagnose.updates import Updates

# Constants that a setting of `precision` rounds to float32.
ROUNDED = {
    "rate": ("learning_rate",),
    "betas": ("beta1", "beta2", "momentum"),
    "decay": ("weight_decay",),
    "all": ("learning_rate", "beta1", "beta2", "momentum", "weight_decay", "epsilon", "factor"),
}
# Sign of the momentum buffer, by whether the learning rate is multiplied into it.
DIRECTION = {"rate outside": 1.0, "rate inside": 1.0, "rate inside, negative": -1.0}
KIND = "kind"
SAME_RATE = 1e-12  # relative: schedules multiply in other orders
MOST_MIXED = 64  # combinations of so many settings that are tried
DECAY, NESTEROV = "weight_decay", "nesterov"


class Rule(NamedTuple):
    """An optimizer's constants and conventions; by default those of torch.optim."""

    kind: str = "sgd"
    rates: tuple[float, ...] = ()  # the learning rates of all steps and of the one after them, where they are known
    learning_rate: float = 0.001
    every: int = 1  # steps between two changes of the learning rate
    factor: float = 1.0
    offset: int = 0  # number of steps by which the schedule is early
    weight_decay: float = 0.0
    decay_form: str = "coupled"
    decayed: str = "all"
    momentum: float = 0.0
    momentum_form: str = "rate outside"
    dampening: float = 0.0
    first: str = "undamped"
    nesterov: bool = False
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    epsilon_placement: str = "after the correction"
    bias_correction: str = "both"
    beta_precision: str = "float64"
    rho: float = 0.99
    centered: bool = False
    accumulator: float = 0.0  # Adagrad's sum in the beginning
    rate_decay: float = 0.0  # of Adagrad, in each step
    momentum_decay: float = 0.004  # of NAdam
    gradient: str = "dense"  # or IndexedSlices: the rows of repeated ids are squared before they are added
    amsgrad: bool = False
    counted: int = 1  # Adam's t in the first step
    precision: str = "float64"
    frozen: str = "no"
    sign: int = 1  # -1: gradient ascent

    def rate(self, step: int) -> float:
        """Return the learning rate of a step."""
        if self.rates:
            return self.rates[step]
        return self.learning_rate * self.factor ** (max(step + self.offset, 0) // self.every)


Slots = dict[str, Array]


@np.errstate(all="ignore")
def replay(updates: Updates, **settings: Any) -> dict[str, Array]:
    """Return what the optimizer leaves after the first and the last step, by the names in `Updates.seen`."""
    rule = Rule(**settings)
    # All as numpy's numbers, which overflow to infinity.
    constants: dict[str, Any] = {name: np.float64(x) for name, x in rule._asdict().items() if isinstance(x, float)}
    rounded = {name: np.float64(np.float32(constants[name])) for name in ROUNDED.get(rule.precision, ())}
    rule = rule._replace(**constants | rounded)
    parameter, last = updates.initial, len(updates.gradients) - 1
    slots: Slots = {}
    results: dict[str, Array] = {}
    for step, gradient in enumerate(updates.gradients):
        squares = updates.squares[step] if rule.gradient != "dense" and step < len(updates.squares) else None
        stepped, slots = _stepped(rule, step, parameter, gradient, squares, slots)
        parameter = stepped if rule.frozen == "no" else parameter
        if rule.frozen == "parameter and optimizer state":
            slots = {slot: np.zeros_like(parameter) for slot in slots}
        if step in (0, last):
            results[f"update@{step}"] = parameter - updates.initial
            results[f"learning_rate@{step}"] = np.asarray(rule.rate(step + 1))
            results |= {f"{slot}@{step}": array for slot, array in slots.items()}
    return results


def _stepped(
    rule: Rule, step: int, parameter: Array, gradient: Array, squares: Array | None, slots: Slots
) -> tuple[Array, Slots]:
    """Return the parameter and the optimizer's slots after one step; `squares` are those of the gradient, if given."""
    require(rule.sign > 0 or gradient.dtype.kind != "u", "a gradient that may be negative")
    gradient, rate, decay = rule.sign * gradient, rule.rate(step), rule.weight_decay
    if rule.decayed == "matrices" and parameter.ndim < 2:
        decay = 0.0
    if rule.decay_form == "coupled":
        gradient = gradient + decay * parameter
    elif rule.decay_form == "decoupled":
        parameter = parameter - rate * decay * parameter
    elif rule.decay_form == "decoupled, not times the rate":
        parameter = parameter - decay * parameter
    change, slots = STEPS[rule.kind](rule, step, gradient, np.square(gradient) if squares is None else squares, slots)
    parameter = parameter - change
    if rule.decay_form == "decoupled, after the step":
        parameter = parameter - rate * decay * parameter
    return parameter, slots


def _sgd(rule: Rule, step: int, gradient: Array, _: Array, slots: Slots) -> tuple[Array, Slots]:
    """Return the change of SGD and its momentum buffer.

    v = momentum v + (1 - dampening) g; rate v is subtracted, or v if g was multiplied by the rate ("rate inside").
    """
    sign, rate = DIRECTION[rule.momentum_form], rule.rate(step)
    inside = rule.momentum_form != "rate outside"
    gradient = gradient * (sign * rate) if inside else gradient
    undamped = not slots and rule.first == "undamped"
    velocity = gradient if undamped else (1 - rule.dampening) * gradient
    if slots:
        velocity = rule.momentum * slots["momentum_buffer"] + velocity
    change = gradient + rule.momentum * velocity if rule.nesterov else velocity
    return change * (sign if inside else rate), {"momentum_buffer": velocity}


def _adam(rule: Rule, step: int, gradient: Array, squares: Array, slots: Slots) -> tuple[Array, Slots]:
    """Return the change of Adam, rate m / correction1 / (sqrt(v / correction2) + epsilon), and its slots."""
    mean = _average(rule.beta1, gradient, slots.get("exp_avg"))
    square = _average(rule.beta2, squares, slots.get("exp_avg_sq"))
    largest = np.maximum(slots.get("max_exp_avg_sq", 0.0), square)
    correction1, correction2 = (
        _correction(rule, beta, step + rule.counted) if rule.bias_correction in ("both", moment) else 1.0
        for moment, beta in (("first", rule.beta1), ("second", rule.beta2))
    )
    denominator = _denominator(rule, largest if rule.amsgrad else square, correction2)
    change = rule.rate(step) / correction1 * mean / denominator
    return change, {"exp_avg": mean, "exp_avg_sq": square, "max_exp_avg_sq": largest}


def _nadam(rule: Rule, step: int, gradient: Array, squares: Array, slots: Slots) -> tuple[Array, Slots]:
    """Return the change of NAdam and its slots: Adam's with the momentum of the next step (Dozat, 2016)."""
    mean = _average(rule.beta1, gradient, slots.get("exp_avg"))
    square = _average(rule.beta2, squares, slots.get("exp_avg_sq"))
    momenta = [rule.beta1 * (1 - 0.5 * 0.96 ** (t * rule.momentum_decay)) for t in range(1, step + 3)]
    *before, following = np.cumprod(momenta)
    ahead = momenta[-1] / (1 - following) * mean + (1 - momenta[-2]) / (1 - before[-1]) * gradient
    root = _denominator(rule, square, _correction(rule, rule.beta2, step + 1))
    return rule.rate(step) * ahead / root, {"exp_avg": mean, "exp_avg_sq": square}


def _adamax(rule: Rule, step: int, gradient: Array, squares: Array, slots: Slots) -> tuple[Array, Slots]:
    """Return the change of Adamax, rate m / correction1 / u, and its slots; epsilon is added to each |g|, or to u."""
    mean = _average(rule.beta1, gradient, slots.get("exp_avg"))
    within, beside = (rule.epsilon, 0.0) if rule.epsilon_placement == "inside the maximum" else (0.0, rule.epsilon)
    largest = np.maximum(rule.beta2 * slots.get("exp_inf", 0.0), np.sqrt(squares) + within)
    change = rule.rate(step) / _correction(rule, rule.beta1, step + 1) * mean / (largest + beside)
    return change, {"exp_avg": mean, "exp_inf": largest}


def _adagrad(rule: Rule, step: int, gradient: Array, squares: Array, slots: Slots) -> tuple[Array, Slots]:
    """Return the change of Adagrad, rate g / (sqrt(the sum of g^2) + epsilon), and its slot."""
    total = squares + slots.get("sum", rule.accumulator)
    return rule.rate(step) / (1 + step * rule.rate_decay) * gradient / _denominator(rule, total, 1.0), {"sum": total}


def _adadelta(rule: Rule, step: int, gradient: Array, squares: Array, slots: Slots) -> tuple[Array, Slots]:
    """Return the change of Adadelta, rate g sqrt(u + epsilon) / sqrt(v + epsilon), and its slots (Zeiler, 2012)."""
    square = _average(rule.rho, squares, slots.get("square_avg"))
    ratio = (slots.get("acc_delta", 0.0) + rule.epsilon) / (square + rule.epsilon)
    moved = _average(rule.rho, ratio * squares, slots.get("acc_delta"))
    return rule.rate(step) * np.sqrt(ratio) * gradient, {"square_avg": square, "acc_delta": moved}


def _rmsprop(rule: Rule, step: int, gradient: Array, squares: Array, slots: Slots) -> tuple[Array, Slots]:
    """Return RMSprop's change and slots: SGD's for g / (sqrt(v) + epsilon), or with epsilon within the root."""
    mean = _average(rule.rho, gradient, slots.get("grad_avg"))
    square = _average(rule.rho, squares, slots.get("square_avg"))
    root = _denominator(rule, square - np.square(mean) if rule.centered else square, 1.0)
    change, momentum = _sgd(rule, step, gradient / root, squares, slots)
    return change, {"grad_avg": mean, "square_avg": square, **momentum}


def _average(beta: float, new: Array, before: Array | None) -> Array:
    """Return a moving average, whose first value is that of zeros and the new one."""
    return (1 - beta) * new if before is None else (1 - beta) * new + beta * before


def _denominator(rule: Rule, square: Array, correction: float) -> Array:
    """Return the denominator of an adaptive optimizer with epsilon in one of the places in use."""
    if rule.epsilon_placement == "inside the root":
        return np.asarray(np.sqrt(square / correction + rule.epsilon))
    if rule.epsilon_placement == "before the correction":
        return np.asarray((np.sqrt(square) + rule.epsilon) / np.sqrt(correction))
    return np.asarray(np.sqrt(square) / np.sqrt(correction) + rule.epsilon)


STEPS: Final = {
    "sgd": _sgd,
    "adam": _adam,
    "nadam": _nadam,
    "adamax": _adamax,
    "adagrad": _adagrad,
    "adadelta": _adadelta,
    "rmsprop": _rmsprop,
}


def _correction(rule: Rule, beta: float, count: int) -> float:
    """Return 1 - beta^t, computed at one of the precisions in use."""
    if rule.beta_precision == "float64":
        return 1 - beta**count
    power = np.float64(np.float32(beta)) ** count
    return float(1 - np.float32(power)) if rule.beta_precision == "float32 powers" else 1 - power


def explained_by_settings(formula: Formula[Updates], reference: Updates, candidate: Updates) -> Explained | None:
    """Return in which settings, as the reference's `formula` has them, two optimizers differ; None if unexplained."""
    if reference.settings is None or candidate.settings is None:
        return None
    mine, stated = (Rule(**settings)._asdict() for settings in (reference.settings, candidate.settings))
    if reproduced_bits(formula, reference, mine) < NEEDED:
        return None
    tries = ((theirs, reproduced_bits(formula, candidate, theirs)) for theirs in _mixed(mine, stated))
    theirs, reached = next((each for each in tries if each[1] >= NEEDED), (stated, 0.0))
    if reached < NEEDED:
        return None
    # What float32 sees comes before what it does not.
    changes = tuple(sorted(_changes(formula, candidate, mine, theirs, reached), key=lambda change: change.before))
    tried = tuple(dict.fromkeys(trait.cause for trait in formula.traits))
    return Explained(not changes, changes, tried, settings=(mine, theirs))


def _mixed(mine: Settings, stated: Settings) -> Iterator[Settings]:
    """Yield the candidate's settings, with ever more of the reference's; then that again with another `nesterov`."""
    differing = [name for name in stated if stated[name] != mine[name] and name not in (KIND, NESTEROV)]
    for is_nesterov in dict.fromkeys((stated[NESTEROV], mine[NESTEROV], not stated[NESTEROV])):
        for count in range(len(differing) + 1):
            for names in itertools.islice(itertools.combinations(differing, count), MOST_MIXED):
                yield {**stated, **{name: mine[name] for name in names}, NESTEROV: is_nesterov}


def _changes(
    formula: Formula[Updates], candidate: Updates, mine: Settings, theirs: Settings, reached: float
) -> Iterator[Change]:
    """Yield the settings without which the candidate's updates do not follow."""
    differing = [trait for trait in formula.traits if mine[trait.name] != theirs[trait.name]]
    if mine[KIND] != theirs[KIND]:
        differing = [trait for trait in differing if trait.name == KIND]
    elif 0 in (mine[DECAY], theirs[DECAY]):  # then the form of the other's decay is no difference of its own
        differing = [trait for trait in differing if trait.name != "decay_form"]
    for trait in differing:
        before = reproduced_bits(formula, candidate, {**theirs, trait.name: mine[trait.name]})
        # At a constant learning rate the form of the momentum changes what is kept, but no update.
        if before < NEEDED and not (trait.name == "momentum_form" and len(set(mine["rates"])) == 1):
            yield Change(trait.name, trait.cause, mine[trait.name], theirs[trait.name], reached, before)
    rates = zip(mine["rates"], theirs["rates"], strict=True)
    is_other = [not math.isclose(rate, their_rate, rel_tol=SAME_RATE) for rate, their_rate in rates]
    if mine[KIND] == theirs[KIND] and any(is_other):
        step = is_other.index(True)
        before = reproduced_bits(formula, candidate, {**theirs, "rates": mine["rates"]})
        name = f"learning_rate of step {step}" if step else "learning_rate"
        cause = "schedule.rate" if step else f"{mine[KIND]}.learning_rate"
        if before < NEEDED:
            yield Change(name, cause, mine["rates"][step], theirs["rates"][step], reached, before)
