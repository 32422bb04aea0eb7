"""What is asked about differences after the first forward pass: in a loss, a gradient, a buffer, an update.

How such a tensor differs is told in words, too.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from parity.config.pair import SPARSE, UNKNOWN
from parity.core.arrays import Array
from parity.core.wording import agree, count, listed
from parity.diagnose.experiment.candidates import STOPS
from parity.diagnose.experiment.knobs import DENSE, SLICES
from parity.diagnose.place import around
from parity.diagnose.solve import multiple
from parity.results import CaseResult, Cause, Divergence
from parity.runtime.experiment import LATER, Change, Outcome, Question, Tensor
from parity.trace import keys
from parity.trace.keys import INPUT, plain
from parity.trace.manifest import Trace
from parity.trace.mapping import Mapping as Weights
from parity.trace.mapping import Matching
from parity.verdict.traces import Unequal

DIGITS: Final = 6  # of a number that is written rather than searched for
IN_PLACE: Final = {"function", "operator"}  # kinds of changes by which something else is computed
STATE: Final = ("parameter", keys.UPDATE, "optimizer_state")
STOPPED, ADDED = "gradient.stopped", "loss.added"
# Causes that say how a gradient differs, and not by what in the code: an experiment may tell that.
COARSE: Final = (STOPPED, "gradient.missing", "gradient.scale", "gradient.sign", "gradient.transposed")
# Ids of what arguments of losses and optimizers are called in either framework.
IDS: Final = {
    "add_loss": ADDED,
    "label_smoothing": "cross_entropy.label_smoothing",
    "from_logits": "cross_entropy.logits",
    "ignore_index": "cross_entropy.ignored",
    "ignore_class": "cross_entropy.ignored",
}
NOISE: Final = 2.0**-36  # of the largest gradient: what may be rounding, as of a bias before a norm
NEAR: Final = 1e-9  # elements that differ by less, relative to the largest, are alike
MOST: Final = 4  # rows that are listed
# What a tensor of each kind is, what a side does that has zeros there, and what the other side does.
WORDS: Final = {
    "gradient": ("the gradient", "gives {} no gradient", "does"),
    keys.UPDATE: ("the update", "leaves {} as it is", "moves it"),
    "buffer": ("the change of the buffer", "leaves {} at zero", "does not"),
}


class Parted(NamedTuple):
    """A difference without a known cause: where it is reported, the tensor's kind and name, and its first step."""

    where: str
    kind: str
    name: str
    step: int


def parted(result: CaseResult, unequal: Sequence[Unequal]) -> list[Parted]:
    """Return what differs behind a forward pass that agrees and has no known cause; of each kind the first."""
    by_kind: dict[str, Parted] = {}
    for cause in result.causes:
        if each := _parted(cause, result.first_divergence, unequal):
            by_kind.setdefault(each.kind, each)
    return list(by_kind.values())


def _parted(cause: Cause, first: Divergence | None, unequal: Sequence[Unequal]) -> Parted | None:
    where, is_unknown = cause.where, cause.id == UNKNOWN
    moved = [tensor for tensor in unequal if tensor.kind in STATE and tensor.kind != "optimizer_state"]
    gradients = [first.name] if first else []
    if first and first.kind == "gradient":  # a diagnosis tells the most informative one, which need not be the first
        gradients += [tensor.name for tensor in unequal if (tensor.kind, tensor.step) == (first.kind, first.step)]
    if first and first.step is not None and (cause.id in COARSE or (is_unknown and where in gradients)):
        kind = keys.UPDATE if first.kind in STATE else first.kind
        if first.kind == "optimizer_state" and (updates := [each for each in moved if each.kind == keys.UPDATE]):
            # A slot may be kept in another form: what it does to the parameters is asked for.
            return Parted(where if is_unknown else first.name, kind, updates[0].name, updates[0].step or 0)
        if kind in LATER:
            return Parted(where if is_unknown else first.name, kind, first.name, first.step)
        if first.step > 0 and moved:  # what an update made is seen in the forward pass of the next step first
            return Parted(where, keys.UPDATE, moved[0].name, moved[0].step or 0)
    states = (tensor for tensor in (*moved, *unequal) if tensor.kind in STATE)  # a slot may be kept in another form
    own = [tensor for tensor in states if where in (tensor.name, tensor.parameter)]
    return Parted(where, keys.UPDATE, where, own[0].step or 0) if is_unknown and own else None


def telling(asked: Parted, unequal: Sequence[Unequal], traces: tuple[Trace, Trace]) -> Parted:
    """Return the difference; of a gradient of one number, but for signs, which any factor fits, that of the largest."""
    gradients = traces[0].of_kind("gradient", asked.step)
    sizes = np.abs(gradients.get(asked.name, ()))
    if asked.kind != "gradient" or not sizes.any() or np.ptp(sizes) > NEAR * sizes.max():
        return asked
    names = {each.name for each in unequal if (each.kind, each.step) == (asked.kind, asked.step)}
    trained = [name for name in gradients if name in names and not name.startswith(INPUT)]
    return asked._replace(name=max(trained, key=lambda name: gradients[name].size))


def questions(
    asked: Parted, matching: Matching, weights: Weights, traces: tuple[Trace, Trace]
) -> Iterator[tuple[Question, Question]]:
    """Yield the questions to both sides, torch's first: about the module of a gradient, those around it, the model."""
    mine, theirs = (str(trace.folder) for trace in traces)
    step = 0 if asked.kind == keys.UPDATE else asked.step  # an optimizer is run from the beginning
    tensor = Tensor(key=keys.key(asked.kind, asked.name), module="", kind=asked.kind, step=step)  # type: ignore[arg-type]
    for torch, keras in dict.fromkeys(_scopes(asked, matching, weights, traces[0])):
        yield (
            Question(module=torch, tensor=tensor, innocent=[], own=mine, other=theirs),
            Question(module=keras, tensor=tensor, innocent=[], own=theirs, other=mine),
        )


def _scopes(asked: Parted, matching: Matching, weights: Weights, torch: Trace) -> Iterator[tuple[str, str]]:
    """Yield the paths of a module in both models, the innermost first; ("", "") is the whole model."""
    entry = next((entry for entry in weights.entries if asked.name in entry.torch), None)
    if asked.kind == "gradient" and entry and not asked.name.startswith(INPUT):
        modules = torch.manifest.modules
        scope, layer = around(asked.name, modules), entry.keras[0].rpartition("/")[0]
        yield scope, layer
        outer = around(scope, modules)
        yield outer, _layer(outer, layer, matching)
    yield "", ""


def _layer(module: str, inner: str, matching: Matching) -> str:
    """Return the layer that corresponds to a module and is around a layer; "" if none does."""
    paths = (plain(match.keras) for match in matching.matches if plain(match.torch) == module)
    return next((path for path in paths if f"{inner}/".startswith(f"{path}/")), "") if module else ""


def as_later(cause: Cause, kind: str, words: str) -> Cause:
    """Return a found cause, named for what comes after the forward pass; `words`: how the tensor differs."""
    if not cause.changes:
        return cause
    change = cause.changes[0]
    id_ = IDS.get(change.name, cause.id) if kind == "loss" else cause.id
    values: dict[str, Any] = {}
    if kind == "gradient" and change.before in STOPS:
        id_, values = STOPPED, dict.fromkeys(("torch", "keras"), f"no {change.before}") | {change.side: change.before}
    if change.owner == SLICES:
        id_, values = SPARSE, {"torch": DENSE, "keras": SLICES}
    if id_ == ADDED:
        values = {"torch": "adds none", "keras": change.owner}
    return replace(cause, id=id_, **values, evidence=f"{words}; {cause.evidence}" if words else cause.evidence)


def likely(outcome: Outcome, kind: str) -> Outcome:
    """Return an outcome without other functions and operators where a number explains as much.

    The product of numbers near zero is as good as nothing, and so is a term whose factor is 0. A number of many digits
    explains no loss: where the gradients agree, the loss is the only evidence, and some number always meets it.
    """
    found = [each for each in outcome.found if kind != "loss" or not any(map(_is_long, each.changes))]
    numbers = [each for each in found if not {change.kind for change in each.changes} & IN_PLACE]
    return replace(outcome, found=numbers or found)


def _is_long(change: Change) -> bool:
    return isinstance(change.after, float) and float(f"{change.after:.{DIGITS}g}") != change.after


def moved(asked: Parted, unequal: Sequence[Unequal]) -> list[str]:
    """Return the parameters of which the same kind of tensor differs, the one that is asked about first."""
    kinds = {"gradient": ("gradient",), keys.UPDATE: STATE}.get(asked.kind, ())
    names = [name for tensor in unequal if tensor.kind in kinds for name in (tensor.name, tensor.parameter)]
    return list(dict.fromkeys([asked.name, *names]))


def alike(asked: Parted, unequal: Sequence[Unequal], kinds: Mapping[str, str]) -> list[Parted]:
    """Return the other differences of the same step and kind at modules of one class (`kinds`), one for each module."""
    own = around(asked.name, kinds)
    by_module = {own: asked}
    for tensor in unequal:
        module = around(tensor.name, kinds)
        if (tensor.step, tensor.kind) == (asked.step, asked.kind) and kinds.get(module) == kinds.get(own):
            by_module.setdefault(module, Parted(tensor.name, tensor.kind, tensor.name, asked.step))
    return [each for module, each in by_module.items() if module != own]


def with_named(
    causes: Sequence[Cause], asked: Parted, named: Sequence[Cause], followers: Collection[str]
) -> list[Cause]:
    """Return the causes with those found in place of a difference's own cause, and of those that follow from it."""
    is_own = asked.name in followers
    replaced = [
        cause.id in (UNKNOWN, *COARSE) and (cause.where in followers or (is_own and cause.where == asked.where))
        for cause in causes
    ]
    kept = [cause for cause, is_replaced in zip(causes, replaced, strict=True) if not is_replaced]
    place = replaced.index(True) if True in replaced else len(kept)
    return [*kept[:place], *named, *kept[place:]]


def both(asked: Parted, traces: tuple[Trace, Trace]) -> tuple[Any, Any]:
    """Return the tensor that differs as each side has recorded it; of an update, how far the parameter has moved."""
    kind = "parameter" if asked.kind == keys.UPDATE else asked.kind
    after = [trace.of_kind(kind, asked.step).get(asked.name) for trace in traces]
    if asked.kind != keys.UPDATE:
        return after[0], after[1]
    before = [trace.of_kind(kind, None).get(asked.name) for trace in traces]
    moved = [None if a is None or b is None else a - b for a, b in zip(after, before, strict=True)]
    return moved[0], moved[1]


def difference(kind: str, name: str, torch: Array | None, keras: Array | None) -> str:
    """Return how a tensor of both sides differs, in words; "" if a side has not recorded it."""
    if torch is None or keras is None or torch.shape != keras.shape or torch.dtype.kind != "f":
        return ""
    if kind == "loss":
        return _loss(float(torch), float(keras))
    what, none, does = WORDS[kind]
    for side, zeros, other, values in (("torch", torch, "keras", keras), ("keras", keras, "torch", torch)):
        if values.any() and not zeros.any():
            return f"{side} {none.format(name)}, {other} {does}"
        if rows := _empty_rows(zeros, values):
            return f"{side} {none.format(f'{rows} of {name}')}, {other} {does}"
    if factor := multiple(torch, keras):
        return f"{what} of {name} in keras is {factor:.6g} times that in torch"
    return f"{what} of {name} differs {_extent(torch, keras)}"


def _loss(torch: float, keras: float) -> str:
    more, ratio = keras - torch, keras / torch if torch else np.inf
    return f"keras's loss is torch's {'+' if more > 0 else '-'} {abs(more):.6g}, or {ratio:.6g} times it"


def _empty_rows(zeros: Array, values: Array) -> str:
    """Return the indices along the first axis at which only `zeros` is zero; "" if there are none, or too many."""
    if zeros.ndim < 2:
        return ""
    lines = [side.reshape(len(side), -1).any(1) for side in (zeros, values)]
    rows, count = np.flatnonzero(~lines[0] & lines[1]), int(lines[1].sum())
    if not 0 < len(rows) < count:
        return ""
    return f"{agree(len(rows), 'row')} {listed(list(map(str, rows)), MOST)}"


def _extent(torch: Array, keras: Array) -> str:
    """Return in which of its elements a tensor differs, and how far the two sides point in one direction."""
    apart = np.abs(torch - keras) > NEAR * max(np.abs(torch).max(initial=0.0), np.abs(keras).max(initial=0.0))
    norms = float(np.linalg.norm(torch) * np.linalg.norm(keras))
    cosine = (
        f"; the cosine of the angle between the two is {float(np.vdot(torch, keras)) / norms:z.3g}" if norms else ""
    )
    rows = np.flatnonzero(apart.reshape(len(apart), -1).any(1)) if apart.ndim > 1 else np.zeros(0)
    if 0 < len(rows) < len(apart) and len(rows) <= MOST:
        return f"in {agree(len(rows), 'row')} {', '.join(map(str, rows))} alone{cosine}"
    return f"in {int(apart.sum())} of {count(apart.size, 'element')}{cosine}"
