"""The values that are tried for a setting: the other side's, the frameworks' defaults, published alternatives.

None of a setting's is tried any more once they seem to be in vain. A number is searched for by Gauss and Newton's
method, on its own scale and on that of its logarithm.
"""

import enum
import itertools
import math
import re
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from parity.core.arrays import Array
from parity.diagnose.experiment.knobs import Knob
from parity.diagnose.formula import UNSET

# Epsilons, momenta, rates, slopes and scales that the frameworks and well-known models have.
PUBLISHED: Final = (
    1e-3, 1e-5, 1e-6, 1e-7, 1e-8, 1e-12, 1.001e-5, 1e-4, 1e-2, 0.01, 0.1, 0.2, 0.3, 0.5, 0.9, 0.99,
    0.999, 2.0, 1.702, 0.044715, 1e4, 1e6, 5e5, math.sqrt(2), math.sqrt(0.5),
    math.sqrt(2 / math.pi), -1e4, -1e9, -math.inf, -1.0, 1.0, 0.0,
)  # fmt: skip
LARGE: Final = (10_000, 100_000, 500_000, 1_000_000)  # wavelengths of position encodings
MOST_INTEGERS: Final = 12  # of the other side's that are tried
MOST_WORDS: Final = 40
MOST_AXES: Final = 4  # of a tensor whose axes are tried
EQUATION: Final = re.compile(r"[A-Za-z., ]+->[A-Za-z. ]*")  # of einsum
# Functions that are written for each other, by their names in either framework, the usual ones first.
FAMILIES: Final = (
    (
        "relu", "tanh", "sigmoid", "gelu", "silu", "leaky_relu", "elu", "relu6", "selu", "softplus", "swish", "mish",
        "celu", "hard_sigmoid", "hardsigmoid", "hard_silu", "hard_swish", "hardswish", "hard_tanh", "hardtanh",
        "softsign", "log_sigmoid", "logsigmoid", "linear", "identity", "exponential", "exp", "tanhshrink",
        "tanh_shrink",
    ),
    ("softmax", "log_softmax", "sigmoid", "softmin"),
    ("mean", "sum", "max", "min", "amax", "amin", "prod", "median", "reduce_mean", "reduce_sum", "reduce_max"),
    ("var", "std"),
    ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"),
    ("MeanSquaredError", "MeanAbsoluteError", "Huber", "LogCosh"),
    ("mean_squared_error", "mean_absolute_error", "huber", "log_cosh", "mean_squared_logarithmic_error"),
    ("triu", "tril"),
    ("sin", "cos"),
    ("maximum", "minimum"),
    ("ceil", "floor", "round"),
    ("abs", "square"),
    ("sqrt", "rsqrt", "square"),
    ("log", "log1p", "log2", "log10"),
    ("exp", "expm1", "exp2"),
    ("zeros", "ones", "zeros_like", "ones_like"),
    ("normal", "uniform"),
    ("randn", "rand"),
    ("randn_like", "rand_like"),
    ("max_pool1d", "avg_pool1d"),
    ("max_pool2d", "avg_pool2d"),
    ("max_pool3d", "avg_pool3d"),
    ("max_pool", "average_pool", "avg_pool"),
    ("adaptive_avg_pool1d", "adaptive_max_pool1d"),
    ("adaptive_avg_pool2d", "adaptive_max_pool2d"),
    ("add", "subtract", "multiply", "divide"),
    ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    ("eq", "ne", "lt", "le", "gt", "ge"),
    ("logical_and", "logical_or", "logical_xor"),
    ("detach", "clone"),
    ("data", "real"),
    ("no_grad", "enable_grad"),
    ("stop_gradient", "convert_to_tensor"),
)  # fmt: skip
# What a function computes by an argument of its own, by names that no framework has; and what stands for one elsewhere.
FORMS: Final = {"gelu": ("gelu_exact", "gelu_tanh"), "smooth_l1_loss": ("huber_loss",), "abs": ("relu",)}
SLICES: Final = (":", "1:", ":-1")  # of an axis that may be shifted against another
RETURNED: Final = ("return_", "output_")  # how names of settings begin that say what is returned
IDENTITIES: Final = ("linear", "identity")  # in place of an activation
ACTIVATIONS: Final = (*FAMILIES[0], *FAMILIES[1])
STOPS: Final = ("detach", "data", "no_grad", "stop_gradient")  # what keeps a gradient from what is before
FUNCTIONS: Final = tuple(dict.fromkeys(name for family in (*FAMILIES, FORMS) for name in family))
IN_VAIN: Final = 4  # values in a row that change nothing or are not taken, until a number is given up
SOON: Final = 2  # such values, until a setting has to wait for those whose values matter; of texts, three times as many
CONTRADICTED: Final = 2  # values that alter what both sides agree on, until others than a number's are given up
SOLVED_AFTER: Final = 1  # values of a setting, before a number is searched for
LONGEST: Final = 3.0  # step on the scale of logarithms


def is_number(value: Any) -> bool:
    """Return whether a value is a number, for which a search over all numbers makes sense."""
    return isinstance(value, (int, float)) and not isinstance(value, (bool, enum.Enum))


def are_axes(value: Any) -> bool:
    """Return whether a value can be a list of axes: a few whole numbers, each once."""
    return (
        isinstance(value, (list, tuple))
        and 0 < len(value) <= MOST_AXES
        and all(type(entry) is int and -MOST_AXES <= entry < MOST_AXES for entry in value)
        and len(set(value)) == len(value)
    )


def candidates(value: Any, theirs: Sequence[Any], words: Collection[str], functions: Mapping[str, Any]) -> list[Any]:
    """Return the values to try in place of a setting's, likely ones first, each once and never the present one.

    `theirs`: the values of the other side's settings. `words`: texts that the code around the setting compares with, or
    that the other side has. `functions`: functions to try in place of a function, by name.
    """
    if isinstance(value, enum.Enum):
        likely: Iterable[Any] = type(value)
    elif isinstance(value, bool):
        likely = [not value]
    elif isinstance(value, float):
        likely = _floats(value, theirs)
    elif isinstance(value, int):
        likely = _integers(value, theirs)
    elif isinstance(value, str):
        likely = _equations(value) if EQUATION.fullmatch(value) else list(words)[:MOST_WORDS]
    elif isinstance(value, (list, tuple)):
        likely = _tuples(value, theirs)
    elif value is None:
        numbers = (number for number in theirs if isinstance(number, (bool, int, float)))
        likely = sorted(_distinct(value, numbers), key=_not_a_count)[:MOST_INTEGERS]
    else:
        likely = functions.values()
    return list(_distinct(value, likely))


def known_functions(module: Any, **forms: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Return those of a module's functions that may stand in place of others, and what they may be besides.

    `forms`: functions by the names that reports have for them (FORMS).
    """
    for name, form in forms.items():
        form.__name__ = name
    return {name: function for name in FUNCTIONS if callable(function := getattr(module, name, None))} | forms


def alternatives(name: str) -> list[str]:
    """Return the functions that are written in place of the one of this name."""
    return [each for family in FAMILIES if name in family for each in family if each != name]


def _distinct(value: Any, values: Iterable[Any]) -> Iterator[Any]:
    seen = [_identity(value)]
    for each in values:
        if _identity(each) not in seen:
            seen.append(_identity(each))
            yield each


def _identity(value: Any) -> Any:
    """Return what two equal settings have in common; True and 1 are not equal."""
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType)):
        return id(value)
    return type(value).__name__, repr(value)


def _not_a_count(value: Any) -> tuple[bool, bool]:
    """Return a sort key of what a setting that is off may be when it is on: a number of things first."""
    return type(value) is not int or value <= 0, isinstance(value, bool)


def _floats(value: float, theirs: Iterable[Any]) -> list[float | None]:
    numbers = [each for each in theirs if isinstance(each, (int, float)) and not isinstance(each, bool)]
    numbers = [float(each) for each in sorted(numbers, key=lambda each: isinstance(each, int))]
    derived = [-value, 1 - value, 2 * value, value / 2, value * value]
    derived += [1 / value] if value else []
    derived += [math.sqrt(value)] if value > 0 else []
    return [None, *numbers, *derived, *PUBLISHED, float(np.float32(value))]


def _integers(value: int, theirs: Sequence[Any]) -> list[Any]:
    numbers = [each for each in map(of_all_axes, theirs) if type(each) is int]
    counts = {2, *(len(each) for each in theirs if are_axes(each) and len(each) > 1)}
    axes = [several for several in _axes(counts) if value in several or value + MOST_AXES in several]
    near = [value + 1, value - 1, -value, 2 * value, value // 2, 0, 1, -1, 2, 3]
    large = sorted(LARGE, key=lambda each: abs(math.log(each / value))) if value >= min(LARGE) / 2 else []
    if large:  # PyTorch's are often floats
        large[:0] = [int(each) for each in theirs if isinstance(each, float) and each in LARGE]
    switched = [1 - value] if value in (0, 1) else []
    both = itertools.zip_longest(list(dict.fromkeys(numbers))[:MOST_INTEGERS], near)
    return [*switched, *large, *(each for pair in both for each in pair if each is not None), *axes]


def of_all_axes(value: Any) -> Any:
    """Return the number of which there is one for each axis, such as a dilation of (4, 4); else the value itself."""
    is_alike = isinstance(value, (list, tuple)) and len(set(map(str, value))) == 1
    return value[0] if is_alike else value


def _axes(counts: Collection[int]) -> Iterator[tuple[int, ...]]:
    """Yield the axes that a function may take together, so many at a time."""
    for count in sorted(counts):
        yield from itertools.combinations(range(MOST_AXES), count)


def _equations(value: str) -> Iterator[str]:
    """Yield an equation of einsum with two axes exchanged, first of the result, then of what it is made of."""
    terms = re.split("(,|->)", value)
    for number in range(len(terms) - 1, -1, -2):
        places = [at for at, letter in enumerate(terms[number]) if letter.isalpha()]
        for first, second in sorted(itertools.combinations(places, 2), key=lambda pair: pair[1] - pair[0]):
            letters = list(terms[number])
            letters[first], letters[second] = letters[second], letters[first]
            yield "".join([*terms[:number], *letters, *terms[number + 1 :]])


def _tuples(value: Any, theirs: Iterable[Any]) -> Iterator[Any]:
    kind = type(value)
    for each in theirs:
        if isinstance(each, (list, tuple)) and len(each) == len(value):
            yield kind(each)
    yield kind(reversed(value))
    if are_axes(value):
        counts = [count for count in range(1, MOST_AXES) if count != len(value)]
        yield from map(kind, (*_axes([len(value)]), *_axes(counts)))
    if all(isinstance(entry, (list, tuple)) for entry in value):
        for several in zip(*(_tuples(entry, ()) for entry in value), strict=False):
            yield kind(several)
    elif all(type(entry) is int for entry in value):
        for fill in (0, 1, 2, -1):
            yield kind([fill] * len(value))
        for number, entry in enumerate(value):
            for each in (entry + 1, entry - 1):
                yield kind([*value[:number], each, *value[number + 1 :]])


class Tries:
    """The values that are tried for a setting: what each left over, and the one that reproduces the other side.

    `contradicted`: how many altered what both sides agree on; `idle`: how many did that, or changed nothing;
    `is_promising`: whether the last one showed that another number takes nearly all of the difference away.
    """

    def __init__(self, knob: Knob, values: Sequence[Any]) -> None:
        self.knob, self.values = knob, values
        self.trials: list[tuple[float, Any]] = []
        self.found: Any = UNSET
        self.turn, self.in_vain, self.contradicted, self.idle, self.is_promising = 0, 0, 0, 0, False

    def is_open(self, is_patient: bool) -> bool:
        """Return whether to try another value: of a number few tell of the others, of a text or a tuple all count."""
        most, contradicted = IN_VAIN if is_patient else SOON, 1
        if not (self.knob.value is None or is_number(self.knob.value)):
            most, contradicted = len(self.values) if is_patient else 3 * SOON, CONTRADICTED
        is_left = self.found is UNSET and self.turn < len(self.values)
        return is_left and self.in_vain < most and self.contradicted < contradicted

    def is_to_solve(self) -> bool:
        """Return whether to search for a number now, as the likeliest values did not do."""
        is_late = self.turn == min(SOLVED_AFTER + 1, len(self.values)) or self.is_promising
        is_hopeless = self.contradicted or self.in_vain >= IN_VAIN or not is_number(self.knob.value)
        return is_late and not is_hopeless and self.found is UNSET


def multiplied(number: float, move: float) -> float:
    """Return the number after a step, made on the scale of logarithms, of which none is longer than LONGEST."""
    return number * math.exp(min(max(move / number, -LONGEST), LONGEST)) if number else math.nan


def step_towards(here: Array | None, there: Array | None, target: Array, step: float) -> tuple[float, float]:
    """Return the first-order step of a number towards the target, and the part of the difference that it takes away."""
    if here is None or there is None or not here.shape == there.shape == target.shape:
        return 0.0, 0.0
    with np.errstate(all="ignore"):
        slope = (np.float64(there) - here).ravel() / step
        rest = np.subtract(target, here, dtype=np.float64).ravel()
    known = np.isfinite(slope) & np.isfinite(rest)
    square, size = float(slope[known] @ slope[known]), float(rest[known] @ rest[known])
    if not square or not size:
        return 0.0, 0.0
    along = float(slope[known] @ rest[known])
    return along / square, along * along / (square * size)
