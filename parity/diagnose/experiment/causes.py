"""The causes that experiments have found, as entries of the report."""

import re
from collections.abc import Mapping, Sequence
from itertools import starmap
from typing import Any, Final

import numpy as np
from msgspec.structs import asdict, replace

from parity.core.wording import count
from parity.diagnose.experiment import candidates
from parity.diagnose.experiment.attempts import DROPOUT
from parity.diagnose.experiment.knobs import AS_GIVEN, THEIRS
from parity.diagnose.experiment.masks import OPPOSITE, TURNED
from parity.diagnose.experiment.operations import EXCHANGED, FIRST, LAYERS, LEFT_OUT, NORMALISATION, OF_TWO, SECOND
from parity.diagnose.experiment.statements import KIND as STATEMENT
from parity.diagnose.experiment.statements import VARIABLE
from parity.diagnose.experiment.taken import OPERANDS, WIRING
from parity.diagnose.formula import NEEDED
from parity.results import Cause, Changed
from parity.runtime.experiment import Change, Found, Outcome

FORMS: Final = {"gelu": "gelu.form", "smooth_l1_loss": "smooth_l1_loss.form"}  # of candidates.FORMS
# What both frameworks and their libraries call a setting, and the name that causes have (docs/causes.md).
NAMES: Final = {
    **dict.fromkeys(("eps", "variance_epsilon", "layer_norm_epsilon", "layer_norm_eps", "norm_eps"), "epsilon"),
    "negative_slope": "slope",
    "approximate": "form",
    **dict.fromkeys(("max_value", "max_val"), "cap"),
    "p": "rate",
    "strides": "stride",
    "dilation_rate": "dilation",
    **dict.fromkeys(("n_head", "n_heads", "num_attention_heads"), "num_heads"),
    **dict.fromkeys(("attention_scale", "scaling"), "scale"),
    **dict.fromkeys(
        ("attn_mask", "attention_mask", "use_causal_mask", "is_causal", "key_padding_mask", "padding_mask"), "mask"
    ),
    **dict.fromkeys(("sliding_window", "sliding_window_size", "window_size"), "window"),
}
ATTENTION: Final = "attention"  # by whatever class
KINDS: Final = {"leaky_relu": "relu", "relu6": "relu"}
SCALE = "module.scale"
# Ids that are not made of the kind of layer and the name of the setting.
IDS: Final = {"max_pool.pool_mode": "pool.kind", "average_pool.pool_mode": "pool.kind", "module.sum": WIRING}
MOST_TIES: Final = 3  # other explanations that the evidence lists
ACTIVATIONS: Final = ("activation", "act", "act_fn", "activation_fn", "activation_function", "intermediate_act_fn")
GELU: Final = "gelu"
FUNCTION: Final = "activation.kind"
LINEAR: Final = "linear"  # an activation that is left out, by its name
PRECISION: Final = "constant.precision"
OTHER_MASK: Final = "another mask"
# The kinds of settings, those first that users know by a name.
KNOWN: Final = (
    "argument", "attribute", "precision", "operation", OTHER_MASK, "default", "callable", "variable", "constant",
    STATEMENT, "function", "operator", "slice", VARIABLE,
)  # fmt: skip
NO_RATE: Final = 1e-6  # below it a dropout drops nothing
FAR: Final = 8  # times as large
SWITCHES: Final = (0.0, 1.0, -1.0)  # numbers that switch a term off or on
# What a change in the code is called.
IN_CODE: Final = {
    "constant": "code.constant",
    "variable": "code.constant",
    "function": "code.function",
    "operator": "code.operator",
    "slice": "code.slice",
    "precision": PRECISION,
    STATEMENT: "statement.order",
    VARIABLE: "code.variable",
}
CARRIED: Final = "state.carried"
KEPT: Final = {False: "returns the same again", True: "keeps state, which is no weight, from call to call"}


def causes(where: str, kind: str, torch: Outcome, keras: Outcome, paths: tuple[str, str] = ("", "")) -> list[Cause]:
    """Return the causes at a module: the fewest changes with which a side reproduces the other, told for both sides.

    State that one side alone carries from call to call is one too. Returns an empty list if nothing was found.

    `where` and `kind`: torch's path of the module, and its kind. `paths`: torch's and Keras's path of the module that
    was called again.
    """
    if torch.keeps_state != keras.keeps_state:
        ours, others = KEPT[torch.keeps_state], KEPT[keras.keeps_state]
        evidence = "the same weights and inputs, called again"
        return [Cause(id=CARRIED, where=where, torch=ours, keras=others, evidence=evidence)]
    torch, keras = (_of_kind(outcome, path, kind) for outcome, path in zip((torch, keras), paths, strict=True))
    sizes = [len(found.changes) for outcome in (torch, keras) for found in outcome.found]
    if not sizes:
        return []
    mine, theirs = (
        [found for found in outcome.found if len(found.changes) == min(sizes)] for outcome in (torch, keras)
    )
    if len((mine or theirs)[0].changes) > 1:
        side, found = ("torch", mine[0]) if mine else ("keras", theirs[0])
        return [_entry(where, side, change, None, found, []) for change in found.changes]
    cause = _both(where, kind, mine, theirs, {"torch": torch.settings, "keras": keras.settings})
    return [_as_scale(cause, torch if cause.changes[0].side == "keras" else keras)]


def _as_scale(cause: Cause, other: Outcome) -> Cause:
    """Return the cause of what is as large as with another number than both sides state: that is not its setting."""
    change = cause.changes[0]
    stated = other.named.get(NAMES.get(change.name, change.name)) or []
    if isinstance(change.before, float) and change.before not in SWITCHES:
        stated = [*stated, *other.settings]  # by another name
    if len(cause.changes) > 1 or not _are_numbers(change) or change.before not in stated or change.after in stated:
        return cause
    values = {change.side: f"{change.name} = {change.before}", _other(change.side): f"as with {change.after}"}
    evidence = f"{cause.evidence}; both sides state {change.before}: what it goes into is another"
    return replace(cause, id=SCALE, **values, evidence=evidence)


def _of_kind(outcome: Outcome, path: str, kind: str) -> Outcome:
    """Return an outcome in which settings of the module itself are those of its kind in torch: kinds have one name."""

    def renamed(change: Change) -> Change:
        is_own = path and change.path == path and change.kind != "operation"
        return replace(change, of=kind) if is_own else change

    found = [replace(each, changes=[renamed(change) for change in each.changes]) for each in outcome.found]
    return replace(outcome, found=found)


def _both(
    where: str, kind: str, mine: list[Found], theirs: list[Found], settings: Mapping[str, Sequence[Any]]
) -> Cause:
    """Return the entry of a single change, with what was found on the other side where the two are one setting.

    What reproduces the other side to the bits of a match comes before what does it as far as float32 can tell. A number
    far from its own that the other side's `settings` do not have comes last: x**40 is as good as nothing. Of changes in
    code that are equally likely, those in the code of the module itself come first.
    """

    def key(entry: tuple[str, Found]) -> tuple[bool, bool, tuple[bool | int, ...], bool]:
        side, (change, *_), is_exact = entry[0], entry[1].changes, entry[1].bits >= NEEDED
        return not is_exact, _is_far(change, settings[_other(side)]), _unlikely(change), not _is_of(change, kind)

    for found in theirs:
        for other in mine:
            if _are_one(other.changes[0], found.changes[0]):
                return _entry(where, "keras", found.changes[0], other.changes[0], found, [*mine, *theirs])
    sides = [("keras", found) for found in theirs] + [("torch", found) for found in mine]
    side, best = min(sides, key=key)
    cause, (change, *_) = _entry(where, side, best.changes[0], None, best, [*mine, *theirs]), best.changes
    known = (*settings[_other(side)], *candidates.PUBLISHED)
    is_searched = change.kind in ("constant", "variable") and type(change.after) is float and change.after not in known
    # What reproduces the other side need not stand there: a factor that is missing is made of a number beside it.
    return replace(cause, **{_other(side): f"as with {change.after:.6g}"}) if is_searched else cause


def _is_of(change: Change, kind: str) -> bool:
    """Return whether a change is made in the code of the module, whose kind is its class's name if it is a user's."""
    return change.kind in IN_CODE and _snake(change.owner.partition(".")[0]) == _snake(kind)


def _are_numbers(change: Change) -> bool:
    return candidates.is_number(change.before) and candidates.is_number(change.after)


def _is_far(change: Change, theirs: Sequence[Any]) -> bool:
    """Return whether a change is to a number many times as large, which the other side states as no setting."""
    is_stated = change.after in theirs and change.kind != "constant"  # in code, which may be another's size
    return _are_numbers(change) and abs(change.after) >= FAR * max(abs(change.before), 1) and not is_stated


def _unlikely(change: Change) -> tuple[bool | int, ...]:
    """Return a sort key of changes: what makes a mask, as a window does, comes before another mask.

    Other axes come after another number: the sum over them may happen to be as many times as large. Several numbers of
    which none is an axis come first, as no chance makes all of them right. Of what is divided by, how much is counted
    comes before a mask that is missing there. Last come numbers that switch something off, as an ELU with alpha 0 is a
    ReLU, a division by what was multiplied with, as by a mask of zeros, and truth values that say what is returned, as
    return_attention_scores does: it is a coincidence that the module then computes in another way or another order.
    """
    switches_off = (isinstance(change.after, float) and change.after in SWITCHES) or (
        change.before == "*" and change.after in ("/", "//")
    )
    is_returned = isinstance(change.before, bool) and change.name.startswith(candidates.RETURNED)
    are_axes = candidates.are_axes(change.before)
    is_several = isinstance(change.before, list) and not are_axes
    kind = 0 if is_several else KNOWN.index(OTHER_MASK if change.before == AS_GIVEN else change.kind)
    if change.after in (FIRST, SECOND):  # what is left out may vanish by a constant or a function as well
        kind = min(kind, KNOWN.index("variable"))
    return switches_off or is_returned, are_axes, kind, change.name != NORMALISATION, change.of == LAYERS


def _are_one(torch: Change, keras: Change) -> bool:
    """Return whether changes on both sides are of one setting: each takes the value that the other has."""
    after = LINEAR if torch.after == LEFT_OUT else torch.after
    return all(starmap(_are_same, ((torch.before, keras.after), (after, keras.before))))


def _are_same(first: Any, second: Any) -> bool:
    """Return whether two values are the same, as are an axis and a list of it, which may be counted from the end."""
    numbers = [each[0] if isinstance(each, list) and len(each) == 1 else each for each in (first, second)]
    are_axes = all(type(each) is int for each in numbers) and [first, second] != numbers
    return bool(first == second or (are_axes and (numbers[0] == numbers[1] or min(numbers) < 0)))


def _entry(where: str, side: str, change: Change, other: Change | None, found: Found, ties: Sequence[Found]) -> Cause:
    """Return the entry of a change; `other` is the same one on the other side, `ties` are all that explain as much."""
    changes = [Changed(side=side, **asdict(change))]
    changes += [Changed(side=_other(side), **asdict(other))] if other else []
    further = [tie for tie in ties if tie.changes[0] not in (change, other)]
    values = {side: change.before, _other(side): other.before if other else change.after}
    forms = [form for form in candidates.FORMS.get(change.name, ()) if form != change.after]
    if change.kind == "function" and len(forms) == 1:
        values = {side: forms[0], _other(side): change.after}
    if change.kind == STATEMENT:
        values = {side: change.before, _other(side): "the other order"}
    if change.after in (THEIRS, OPPOSITE):
        values = {side: "its own", _other(side): "another"}
    if change.after == EXCHANGED:
        values = dict(zip((side, _other(side)), OF_TWO[change.before == "where"], strict=True))
    if DROPOUT in change.of and candidates.is_number(change.after) and change.after < NO_RATE:
        values = {side: change.before, _other(side): 0.0}  # at 0 no mask would be drawn, and all others be earlier ones
    if _is_rounded(change) and change.before == change.after:
        values = {side: "float64", _other(side): "float32"}
    evidence = _evidence(side, change, found, further)
    return Cause(id=_id(change, other), where=where, **values, evidence=evidence, changes=changes)


def _is_rounded(change: Change) -> bool:
    """Return whether the other side has the same constant, but for what float32 keeps of it."""
    if change.kind not in ("attribute", "constant") or not type(change.before) is type(change.after) is float:
        return False
    return bool(np.float32(change.before) == np.float32(change.after))


def _id(change: Change, other: Change | None) -> str:
    """Return the id of a cause: the kind of module and the setting, by the side that has a name for it."""
    if _is_rounded(change) or change.after == EXCHANGED:
        return OPERANDS if change.after == EXCHANGED else PRECISION
    if change.after == TURNED:
        return "mask.axis"
    named = next((each for each in (change, other) if each and each.of), None)
    if named:
        kind = _snake(named.of)
        kind = kind if kind == "conv2d" else re.sub(r"_?[123]d$", "", KINDS.get(kind, kind))
        kind = ATTENTION if kind.endswith(f"_{ATTENTION}") else kind
        if named.name in ACTIVATIONS:
            is_form = str(named.before).startswith(GELU) and str(named.after).startswith(GELU)
            return f"{GELU}.form" if is_form else FUNCTION
        if named.after == LEFT_OUT and named.before in candidates.ACTIVATIONS:
            return FUNCTION
        name = NAMES.get(named.name, named.name)
        return IDS.get(f"{kind}.{name}", f"{kind}.{name}")
    if change.kind == "function" and change.after in candidates.FORMS.get(change.name, ()):
        return FORMS.get(change.name, IN_CODE[change.kind])
    if change.kind == "function" and {change.before, change.after} <= {*candidates.ACTIVATIONS, LEFT_OUT}:
        return FUNCTION
    default = next((each for each in (change, other) if each and each.kind == "default"), None)
    if default:
        owner = re.sub(r"_v\d+$", "", _snake(default.owner.rpartition(".")[2]))  # TensorFlow's softmax_v2
        return f"{owner}.{NAMES.get(default.name, default.name)}"
    return WIRING if change.after in (FIRST, SECOND) else IN_CODE[change.kind]


def _evidence(side: str, change: Change, found: Found, ties: Sequence[Found]) -> str:
    place = f" ({change.source})" if change.source else ""
    reached = f"to {count(round(found.bits), 'bit')}" if found.bits >= NEEDED else "as far as float32 can tell"
    text = (
        f"called again with {_told(change)}{place}, {side} returns what {_other(side)} does {reached}; "
        f"as it is, to {count(round(found.before), 'bit')}"
    )
    told = list(dict.fromkeys(_told(tie.changes[0]) for tie in ties))
    return f"{text}; so it does with {' or '.join(told[:MOST_TIES])}" if told else text


def _told(change: Change) -> str:
    """Return a change in words: "LeakyReLU.negative_slope 0.3 -> 0.01", "1.7 -> 1.702 in Act.call"."""
    if change.kind == STATEMENT:
        return f"{change.after} in {change.owner}"
    values = f"{change.before!r} -> {change.after!r}"
    values += " rounded to float32" if _is_rounded(change) and change.before == change.after else ""
    if change.kind in ("argument", "attribute", "default", "callable"):
        return f"{change.owner}.{change.name} {values}"
    name = f"{change.name} " if change.kind in ("variable", "operation") else ""
    return f"{name}{values} in {change.owner}"


def _other(side: str) -> str:
    return "torch" if side == "keras" else "keras"


def _snake(name: str) -> str:
    """Return a class's name as causes have it: LeakyReLU is leaky_relu, OPTAttention opt_attention."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])|(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return name.lower().replace("re_lu", "relu")
