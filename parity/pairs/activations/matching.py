"""Match the tensors of Keras's layers with those of torch's modules, after both ran the same inputs and weights.

Both ran in float64, in inference. Each stage works on what the stages before have left: tensors of the same values
(`equal`), of modules that own the same weights, and of equal kinds between two that correspond (`unequal`). What is
matched will be compared, so that a false match would be a false alarm. Tensors that are not the same are therefore
matched only where their difference lives on in the tensors that follow.
"""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from einops import rearrange

from parity.core.arrays import Array
from parity.core.errors import UsageError
from parity.core.groups import by_key
from parity.pairs.activations.counterparts import (
    Correspondence,
    Counterparts,
    drawn_alike,
    is_output,
    module_outputs,
    outputs,
)
from parity.pairs.activations.equal import match_equal
from parity.pairs.activations.layouts import output_layouts
from parity.pairs.activations.modules import Surveyed, module
from parity.pairs.activations.unequal import fed, match_in_gaps, match_owners
from parity.pairs.activations.values import Order, Tensor, distance
from parity.pairs.activations.values import orders as orders_of_axes
from parity.pairs.weights.patterns import Shape, reorders, reverse
from parity.results import Matched
from parity.runtime.returned import sentences
from parity.runtime.survey import Module, Rehearsal, Survey
from parity.trace.keys import MODEL
from parity.trace.mapping import Mapping, Match, Matching

Arguments = dict[str, list[Shape]]
LINEAR = ("linear", "linear_io")
EQUAL = 1e-10  # relative L2 in float64: rounding stays below it, a constant held in float32 does not
HIDDEN = 2.0**-22  # as of a verdict `subprecision` (docs/verdicts.md)


def match(
    torch: Surveyed, keras: Surveyed, mapping: Mapping, given: Sequence[Order] = (), by_masks: bool = True
) -> Matching:
    """Match all tensors; the outputs of the whole models are matched by their names.

    `given` are orders of axes that the pair's file gives to the models' inputs. `by_masks`: whether as many dropout
    masks must have been drawn before two tensors that correspond. Raises UsageError if one side lacks an output.
    """
    output_keys = _outputs(torch.survey, keras.survey)
    layouts = output_layouts(torch, keras, output_keys, given)
    # In torch's axes; a layout is the pattern from torch's to Keras's.
    canonical = {key: rearrange(keras.values[key], reverse(layout)) for key, layout in layouts.items()}
    keras = keras._replace(values=keras.values | canonical)
    # One of another shape is left to the comparison to report.
    shapes = {seen.key: tuple(seen.shape) for seen in torch.survey.outputs}
    same_shape = [key for key in output_keys if key in keras.values and keras.values[key].shape == shapes[key]]
    output_matches = [Match(torch=key, keras=key, axes=list(range(len(shapes[key]))), by="order") for key in same_shape]
    alike = by_masks and drawn_alike(torch.survey, keras.survey)
    ours, theirs = (module_outputs(side, mapping, alike) for side in (torch, keras))
    state = Counterparts(ours, theirs, outputs_apart(torch, keras.values), given)
    match_equal(state)
    match_owners(state)
    match_in_gaps(state)
    reordered = _reordered(mapping)
    matches = _matches(state, torch.survey, keras.survey, reordered)
    told = {module(each.torch) for each in matches if each.inputs is not None} | reordered
    distances = {pair.torch.key: pair.fit.distance for pair in state.matched.values()}
    distances |= {each.torch: _apart(torch.values[each.torch], keras.values[each.keras]) for each in output_matches}
    return Matching(
        matches=[*matches, *output_matches],
        torch_alone=[output.key for output in state.torch if output.number not in state.matched],
        keras_alone=[output.key for output in state.keras if output.number not in state.taken],
        layouts=layouts,
        fed=list(fed(state, torch.survey.arguments, keras.survey.arguments, told)),
        equal=[key for key, distance in distances.items() if distance <= EQUAL],
        hidden=[key for key, distance in distances.items() if distance <= HIDDEN],
        not_compared=[*sentences("torch", torch.survey.returned), *sentences("Keras", keras.survey.returned)],
    )


def match_in_order(
    torch: Surveyed, keras: Surveyed, mapping: Mapping, given: Sequence[Order]
) -> tuple[Matching, dict[int, list[int]]]:
    """Return what `match` does, and in which order Keras's model draws torch's masks, if that is another one."""
    matching, masks = match(torch, keras, mapping, given), torch.survey.rehearsal.masks
    if len(set(masks)) < len(masks) and matching.torch_alone:
        freely = match(torch, keras, mapping, given, by_masks=False)
        if orders := _draws(freely, torch.survey.rehearsal, keras.survey.rehearsal):
            return freely, orders
    return matching, {}


def _draws(matching: Matching, torch: Rehearsal, keras: Rehearsal) -> dict[int, list[int]]:
    """Return torch's masks in the order in which Keras's model draws them, by their size, where that is another order.

    Which of torch's masks is which of Keras's is told by the next tensor that corresponds: two towers of a model may be
    called in any order. Numbers count the masks of one size in a step.
    """
    names = {match.keras: match.torch for match in matching.matches if not match.torch.startswith(MODEL)}
    orders = {}
    for size in dict.fromkeys(torch.masks):
        ours = _next_tensors(torch, {name: name for name in names.values()}, size)
        theirs = _next_tensors(keras, names, size)
        if ours != theirs and sorted(ours) == sorted(theirs):
            numbers = by_key((name, number) for number, name in enumerate(ours))
            orders[size] = [numbers[name].pop(0) for name in theirs]
    return orders


def _next_tensors(rehearsal: Rehearsal, names: dict[str, str], size: int) -> list[str]:
    """Return for each mask of a size the tensor, of those that have a name here, that is returned next; "" if none."""
    known = [(name, rehearsal.behind(key, size) or 0) for key in rehearsal.drawn if (name := names.get(key))]
    masks = range(rehearsal.masks.count(size))
    return [next((name for name, before in known if before > number), "") for number in masks]


def summary(matching: Matching, alone: dict[str, list[str]] | None = None) -> Matched:
    """Return what the report says of a matching; `alone` are matched tensors, by the only side that recorded them."""
    inner = [match for match in matching.matches if not is_output(match.torch)]
    counts = Counter(match.by for match in inner)
    by = {reason: counts[reason] for reason in ("weights", "value", "order") if counts[reason]}
    further = alone or {}
    return Matched(
        matched=len(inner),
        by=by,
        torch_alone=list(dict.fromkeys([*matching.torch_alone, *further.get("torch", [])])),
        keras_alone=list(dict.fromkeys([*matching.keras_alone, *further.get("keras", [])])),
        layouts=matching.layouts,
    )


def outputs_apart(torch: Surveyed, keras: dict[str, Array]) -> float:
    """Return the largest distance between the outputs of the whole models; infinite if an output is missing."""
    keys = outputs(torch.survey)
    if not keys or not set(keys) <= set(torch.values) & set(keras):
        return math.inf
    tensors = (Tensor(torch.values[key]) for key in keys)
    if not any(output.family == "float" and not output.is_constant for output in tensors):
        return math.inf  # class ids, or one number everywhere, can be equal in spite of any fault
    return max(_apart(torch.values[key], keras[key]) for key in keys)


def _apart(first: Array, second: Array) -> float:
    flat = (np.asarray(array, np.float64).reshape(-1) for array in (first, second))
    return distance(*flat) if first.shape == second.shape else math.inf


def _outputs(torch: Survey, keras: Survey) -> list[str]:
    """Return the keys of what both models return. Raises UsageError if one does not return what the other does."""
    torch_keys, keras_keys = outputs(torch), outputs(keras)
    for expected, returned, side in ((torch_keys, keras_keys, "Keras"), (keras_keys, torch_keys, "torch")):
        if missing := [key for key in expected if key not in returned]:
            raise UsageError(
                f"{side}'s model does not return {missing[0]}: torch's returns {', '.join(torch_keys) or 'nothing'}, "
                f"Keras's {', '.join(keras_keys) or 'nothing'}; name the outputs to compare on both sides in [outputs] "
                "of the pair's file"
            )
    return torch_keys


def _reordered(mapping: Mapping) -> set[str]:
    """Return torch's modules whose Keras layer takes its features in another order, as behind another flattening."""
    entries = [entry for entry in mapping.entries if entry.rearrange and "..." not in entry.rearrange]
    reordering = [each for each in entries if each.orders_inputs or any(map(reorders, each.rearrange.split(";")))]
    return {name.rpartition(".")[0] for entry in reordering for name in entry.torch}


def _matches(state: Counterparts, torch: Survey, keras: Survey, reordered: set[str]) -> list[Match]:
    """Return the matches in the form in which both sides get them; inputs of `reordered` modules are not compared."""
    pairs = [state.matched[number] for number in sorted(state.matched)]
    orders: dict[tuple[Shape, Shape], Order] = {}
    inputs: dict[str, list[int] | None] = {}
    dense = {module.path for module in keras.modules if _multiplies_last_axes(module)}
    for pair in pairs:
        if "#" not in pair.torch.key:
            is_dense = pair.torch.kind in LINEAR and pair.keras.module in dense
            inputs[pair.torch.module] = _inputs(pair, torch.arguments, keras.arguments, orders, is_dense)
        orders[pair.torch.tensor.shape, pair.keras.tensor.shape] = pair.fit.order
    inputs_not_compared = _with_unmatched_calls(state) | reordered
    return [
        Match(
            torch=pair.torch.key,
            keras=pair.keras.key,
            axes=list(pair.fit.order),
            inputs=None if pair.torch.module in inputs_not_compared else inputs.get(pair.torch.module),
            by=pair.by,
        )
        for pair in pairs
    ]


def _with_unmatched_calls(state: Counterparts) -> set[str]:
    """Return torch's modules whose calls do not all match those of one Keras layer: their inputs are not compared."""
    modules: set[str] = set()
    first: dict[str, Shape] = {}
    for output in state.torch:
        shape = first.setdefault(output.module, output.tensor.shape)
        pair = state.matched.get(output.number)
        if pair and output.key.partition("#")[2] != pair.keras.key.partition("#")[2]:
            modules.add(output.module)
        if not pair and output.tensor.shape == shape:  # a tensor of another shape is a further result of the same call
            modules.add(output.module)
    return modules


def _multiplies_last_axes(module: Module) -> bool:
    """Return whether a layer of Keras's multiplies the last axes of its input by a matrix, as torch's Linear does.

    An EinsumDense may multiply several of them, such as heads and their elements, or others.
    """
    given, _, rest = str(module.facts.get("equation", "")).replace(" ", "").partition(",")
    kernel, _, returned = rest.partition("->")
    summed = "".join(letter for letter in given if letter in kernel and letter not in returned)
    return module.kind == "einsum_dense" and bool(summed) and given.endswith(summed)


def _inputs(
    pair: Correspondence, torch: Arguments, keras: Arguments, orders: dict[tuple[Shape, Shape], Order], is_dense: bool
) -> list[int] | None:
    """Return the order of axes of the input of both layers, or None.

    It is None unless both have one input, whose order can be told: not of a cube, whose axes may have been exchanged
    before. `is_dense` says that both layers multiply the last axes of their input by a matrix, though they are not of
    one kind.
    """
    torch_shapes, keras_shapes = torch.get(pair.torch.module, []), keras.get(pair.keras.module, [])
    is_one_kind = is_dense or pair.torch.kind == pair.keras.kind
    if pair.by == "order" or not is_one_kind or len(torch_shapes) != 1 or len(keras_shapes) != 1:
        return None
    shape, keras_shape = tuple(torch_shapes[0]), tuple(keras_shapes[0])
    # The order of the layer's output; that of an earlier tensor of the same shapes, which it may be; the identity.
    identity = tuple(range(len(keras_shape)))
    fitting = [
        order
        for order in (pair.fit.order, orders.get((shape, keras_shape)), identity)
        if order and len(order) == len(keras_shape) and tuple(keras_shape[axis] for axis in order) == shape
    ]
    if fitting:
        is_told = fitting[0] == pair.fit.order or len(set(fitting)) == 1
        return list(fitting[0]) if is_told else None
    return list(identity) if is_dense and identity in orders_of_axes(keras_shape, shape) else None
