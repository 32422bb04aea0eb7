"""Which tensors that Keras's layers return are which of torch's, after both ran the same inputs and weights.

In float64 inference. The stages, each among what the ones before left over: tensors of the same values (`equal`), of
modules that own the same weights, and of equal kinds between two that correspond (`unequal`). What is matched is
compared by the judge: a false match would be a false alarm, so what is not the same is matched only where a
difference lives on behind it.
"""

import math
from collections import Counter

import numpy as np
from einops import rearrange

from parity.core.arrays import Array
from parity.core.errors import UsageError
from parity.pairs.activations.counterparts import Counterparts, Found, drawn_alike, is_output, outputs, places
from parity.pairs.activations.equal import match_equal
from parity.pairs.activations.layouts import output_layouts
from parity.pairs.activations.unequal import match_in_gaps, match_owners
from parity.pairs.activations.values import Order, Shape, Tensor, distance
from parity.pairs.patterns import reorders, reverse
from parity.results import Matched
from parity.trace.mapping import Mapping, Match, Matching
from parity.trace.returned import sentences
from parity.trace.survey import Survey

Arguments = dict[str, list[Shape]]
EQUAL = 1e-10  # relative L2 in float64: what rounding leaves between two ports, and no constant in float32 does


def match(
    torch: Survey, torch_values: dict[str, Array], keras: Survey, keras_values: dict[str, Array], mapping: Mapping
) -> Matching:
    """Find the counterparts. The whole models' outputs go by their names. Raises UsageError if one is missing."""
    named = _outputs(torch, keras)
    layouts = output_layouts(torch, torch_values, keras, keras_values, named)
    keras_values = keras_values | {key: _canonical(keras_values[key], layouts[key]) for key in layouts}
    whole = _whole(named, torch, keras_values)
    apart = outputs_apart(torch, torch_values, keras_values)
    alike = drawn_alike(torch, keras)
    ours, theirs = places(torch, torch_values, mapping, alike), places(keras, keras_values, mapping, alike)
    state = Counterparts(ours, theirs, apart)
    match_equal(state)
    match_owners(state)
    match_in_gaps(state)
    return Matching(
        matches=[*_matches(state, torch.arguments, keras.arguments, _reordered(mapping)), *whole],
        torch_alone=[place.key for place in state.torch if place.number not in state.found],
        keras_alone=[place.key for place in state.keras if place.number not in state.taken],
        layouts=layouts,
        equal=[
            *(pair.torch.key for pair in state.found.values() if pair.fit.distance <= EQUAL),
            *(match.torch for match in whole if _apart(torch_values[match.torch], keras_values[match.keras]) <= EQUAL),
        ],
        not_compared=[*sentences("torch", torch.returned), *sentences("Keras", keras.returned)],
    )


def summary(matching: Matching, alone: dict[str, list[str]] | None = None) -> Matched:
    """What the report says of a matching. `alone`: by side what was recorded there only although it is matched."""
    inner = [match for match in matching.matches if not is_output(match.torch)]
    counts = Counter(match.by for match in inner)
    by = {way: counts[way] for way in ("weights", "value", "order") if counts[way]}
    further = alone or {}
    return Matched(
        matched=len(inner),
        by=by,
        torch_alone=list(dict.fromkeys([*matching.torch_alone, *further.get("torch", [])])),
        keras_alone=list(dict.fromkeys([*matching.keras_alone, *further.get("keras", [])])),
        layouts=matching.layouts,
    )


def outputs_apart(torch: Survey, torch_values: dict[str, Array], keras_values: dict[str, Array]) -> float:
    """How far apart what the whole models returned is: the most of all outputs, infinite if one is missing."""
    keys = outputs(seen.key for seen in torch.outputs)
    if not keys or not set(keys) <= set(torch_values) & set(keras_values):
        return math.inf
    told = (Tensor(torch_values[key]) for key in keys)
    if not any(output.family == "float" and not output.is_constant for output in told):
        return math.inf  # class ids, or one number everywhere, are equal behind any fault
    return max(_apart(torch_values[key], keras_values[key]) for key in keys)


def _apart(one: Array, other: Array) -> float:
    flat = (np.asarray(array, np.float64).reshape(-1) for array in (one, other))
    return distance(*flat) if one.shape == other.shape else math.inf


def _outputs(torch: Survey, keras: Survey) -> list[str]:
    """What both models return, by key. Raises UsageError where one does not return what the other does."""
    ours, theirs = (outputs(seen.key for seen in survey.outputs) for survey in (torch, keras))
    for here, there, side in ((ours, theirs, "Keras"), (theirs, ours, "torch")):
        if missing := [key for key in here if key not in there]:
            raise UsageError(
                f"{side}'s model does not return {missing[0]}: torch's returns {', '.join(ours) or 'nothing'}, Keras's "
                f"{', '.join(theirs) or 'nothing'}; [outputs] in the pair's file names those to compare on both sides"
            )
    return ours


def _canonical(values: Array, layout: str) -> Array:
    """In torch's axes. `layout`: from these to Keras's."""
    return np.asarray(rearrange(values, reverse(layout)))


def _whole(named: list[str], torch: Survey, keras_values: dict[str, Array]) -> list[Match]:
    """The whole models' outputs: their axes are canonical already. Another shape is for the judge to tell."""
    shapes = {seen.key: seen.shape for seen in torch.outputs}
    alike = [key for key in named if key in keras_values and keras_values[key].shape == tuple(shapes[key])]
    return [Match(torch=key, keras=key, axes=list(range(len(shapes[key]))), by="order") for key in alike]


def _reordered(mapping: Mapping) -> set[str]:
    """torch's modules whose layer takes features in another order, as behind a flattening of other axes."""
    entries = [entry for entry in mapping.entries if entry.rearrange and "..." not in entry.rearrange]
    found = [entry for entry in entries if any(map(reorders, entry.rearrange.split(";")))]
    return {name.rpartition(".")[0] for entry in found for name in entry.torch}


def _matches(state: Counterparts, torch: Arguments, keras: Arguments, reordered: set[str]) -> list[Match]:
    """The pairs as both sides are told of them. `reordered`: modules whose inputs are not compared."""
    found = [state.found[number] for number in sorted(state.found)]
    known: dict[tuple[Shape, Shape], Order] = {}
    inputs: dict[str, list[int] | None] = {}
    for pair in found:
        if "#" not in pair.torch.key:
            inputs[pair.torch.module] = _inputs(pair, torch, keras, known)
        known[pair.torch.tensor.shape, pair.keras.tensor.shape] = pair.fit.order
    apart = _called_apart(state) | reordered
    return [
        Match(
            torch=pair.torch.key,
            keras=pair.keras.key,
            axes=list(pair.fit.order),
            inputs=None if pair.torch.module in apart else inputs.get(pair.torch.module),
            by=pair.by,
        )
        for pair in found
    ]


def _called_apart(state: Counterparts) -> set[str]:
    """torch's modules of which not every call is the same call of one layer: their inputs are not compared."""
    apart: set[str] = set()
    first: dict[str, Shape] = {}
    for place in state.torch:
        shape = first.setdefault(place.module, place.tensor.shape)
        pair = state.found.get(place.number)
        if pair and place.key.partition("#")[2] != pair.keras.key.partition("#")[2]:
            apart.add(place.module)
        if not pair and place.tensor.shape == shape:  # of another shape it is a further tensor of a call
            apart.add(place.module)
    return apart


def _inputs(
    pair: Found, torch: Arguments, keras: Arguments, known: dict[tuple[Shape, Shape], Order]
) -> list[int] | None:
    """The order of axes of what goes into both layers, if it is one tensor and can be told."""
    ours, theirs = torch.get(pair.torch.module, []), keras.get(pair.keras.module, [])
    if pair.by == "order" or pair.torch.kind != pair.keras.kind or len(ours) != 1 or len(theirs) != 1:
        return None
    shape, other = tuple(ours[0]), tuple(theirs[0])
    # As its output; as an earlier tensor of these very shapes, which it may be; as it is.
    likely = (pair.fit.order, known.get((shape, other)), tuple(range(len(other))))
    for order in likely:
        if order and len(order) == len(other) and tuple(other[axis] for axis in order) == shape:
            return list(order)
    return None
