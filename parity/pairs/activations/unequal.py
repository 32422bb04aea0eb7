"""Match tensors that are not the same: after a fault, no tensor is.

Modules that own the same weights belong together, the nearest values first. If one side's layer has its activation
built in, its counterpart is what the other side's activation returns. Then tensors of one kind are matched between
two pairs that correspond.

A layer with its activation built in, which is a module or a function of its own on the other side, returns a tensor
that does not correspond to that of the module of the same weights. What the two are given does (`fed`), if they do the
same with their weights.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from parity.core.groups import by_key, grouped
from parity.pairs.activations.counterparts import By, Correspondence, Counterparts, ModuleOutput, masks_may_agree
from parity.pairs.activations.layouts import order_by_channels
from parity.pairs.activations.values import CLEARLY, CLOSE, SAME
from parity.pairs.weights.names import without_numbers
from parity.pairs.weights.patterns import Shape
from parity.trace.mapping import Fed

RELATED = 0.75  # up to this distance, a module of another kind at the same place is a fault rather than another step
SORTS = {"pool": ("pool",), "activation": ("activation", "elu", "silu", "swish", "sigmoid", "tanh", "softplus")}
LINEAR = "linear"
Arguments = Mapping[str, Sequence[Shape]]


def match_owners(state: Counterparts) -> None:
    """Match what modules that own the same weights return: first what is close, then what nothing else can be."""
    groups = _groups(state)
    close = [
        candidate
        for torch, keras in groups
        for candidate in _candidates(state, torch, keras)
        if candidate.fit.distance <= CLOSE and not _is_out_of_turn(state, candidate, torch, keras)
    ]
    for candidate in sorted(close, key=lambda candidate: candidate.rank):
        _accept(state, candidate)
    equal = {_without_numbers(pair) for pair in state.matched.values() if pair.fit.distance <= SAME}
    for torch, keras in groups:
        for mine, theirs in itertools.product(torch, keras):  # as other layers of these names, whose outputs agree
            for candidate in _candidate(state, mine, theirs, "weights") if torch[1:] or keras[1:] else ():
                if _without_numbers(candidate) in equal and mine.fused == theirs.fused:
                    _accept(state, candidate)
        for leaf in (True, False, None):
            torch_left, keras_left = (
                [output for output in outputs if output.number not in taken and leaf in (None, output.leaf)]
                for outputs, taken in ((torch, state.matched), (keras, state.taken))
            )
            _match_in_order(state, torch_left, keras_left)


def _without_numbers(pair: Correspondence) -> tuple[str, str]:
    """Return both modules' paths without numbers; the first of equal layers of Keras's has none."""
    return without_numbers(pair.torch.module), without_numbers(pair.keras.module).replace("_#", "")


def _is_out_of_turn(
    state: Counterparts, candidate: Correspondence, torch: list[ModuleOutput], keras: list[ModuleOutput]
) -> bool:
    """Return whether two tensors stand at other places among as many of a group, where those in turn are as near.

    What a module returns in each of its calls may be alike, so that after a fault the nearest is that of another call.
    """
    is_within = candidate.torch in torch and candidate.keras in keras
    if candidate.fit.distance <= SAME or len(torch) != len(keras) or not is_within:
        return False
    in_turn = keras[torch.index(candidate.torch)]
    fit = state.fit_once(candidate.torch, in_turn)
    return in_turn is not candidate.keras and fit is not None and candidate.fit.distance > CLEARLY * fit.distance


def match_in_gaps(state: Counterparts) -> None:
    """Match tensors of one kind between pairs that correspond, if exactly one fits there, or one is much nearer."""
    for group_of in (
        lambda output: output.kind,
        _sort,
        # A module without weights and submodules computes something, unless it returns what it is given.
        lambda output: "any" if output.leaf and not output.owns and output.kind.lower() != "identity" else "",
    ):
        accepted = [True]
        while any(accepted):  # each new pair makes the gaps narrower
            accepted = [_accept(state, candidate) for candidate in _clear(state, group_of)]


def _sort(output: ModuleOutput) -> str:
    """Return the sort of a module without weights ("pool", "activation" or ""), which a wrong activation has too."""
    kind = output.kind.lower()
    fitting = (sort for sort, parts in SORTS.items() if any(part in kind for part in parts))
    return "" if output.owns else next(fitting, "")


def _groups(state: Counterparts) -> list[tuple[list[ModuleOutput], ...]]:
    """Return the tensors of modules that own the same weights, if both sides have some.

    If several modules of one side together own what a single module of the other side does, the last of them returns
    the same.
    """
    ours, theirs = (by_key((each.owns, each) for each in side if each.owns) for side in (state.torch, state.keras))
    groups = [(owns, ours.get(owns, []), theirs.get(owns, [])) for owns in ours | theirs]
    for owns, torch, keras in groups:
        for outputs, own, other in ((state.keras, torch, keras), (state.torch, keras, torch)):
            if own and not other and len(owns) > 1 and all(output.leaf for output in own):
                parts = [output for output in outputs if output.owns and output.owns < owns]
                other += parts[-1:] if frozenset().union(*(output.owns for output in parts)) == owns else []
    return [_without_repeats(torch, keras) for _, torch, keras in groups if torch and keras]


def _without_repeats(torch: list[ModuleOutput], keras: list[ModuleOutput]) -> tuple[list[ModuleOutput], ...]:
    """Return a group without what a module returns twice, as a cell its output in its states, if as many are left."""
    sides = [grouped(side, lambda each: (each.module, each.tensor.digest)).values() for side in (torch, keras)]
    first = tuple([repeats[0] for repeats in side] for side in sides)
    return first if len(first[0]) == len(first[1]) else (torch, keras)


def _candidates(
    state: Counterparts, torch_outputs: list[ModuleOutput], keras_outputs: list[ModuleOutput]
) -> Iterator[Correspondence]:
    """Yield the pairs of a group; if only one side's layer may have its activation built in, also those after it."""
    for torch in torch_outputs:
        for keras in keras_outputs:
            if torch.number in state.matched and keras.number in state.taken:
                continue
            if torch.fused == keras.fused:
                yield from _candidate(state, torch, keras, "weights")
            if torch.kind != keras.kind or torch.fused != keras.fused:
                yield from _after(state, torch, keras)


def _after(state: Counterparts, torch: ModuleOutput, keras: ModuleOutput) -> Iterator[Correspondence]:
    """Yield pairs with the layer without weights that is called next, which may be the activation."""
    if not (torch.leaf and keras.leaf):
        return
    if not torch.fused and (activation := _activation(state.torch, torch)):
        yield from _candidate(state, activation, keras, "order")
    if not keras.fused and (activation := _activation(state.keras, keras)):
        yield from _candidate(state, torch, activation, "order")


def _activation(outputs: Sequence[ModuleOutput], output: ModuleOutput) -> ModuleOutput | None:
    """Return what the next module returns, if it may be the activation of this one."""
    following = outputs[output.number + 1 : output.number + 2]
    computing = (each for each in following if each.leaf and not each.owns and not each.is_random)
    return next((each for each in computing if each.tensor.size == output.tensor.size), None)


def _candidate(state: Counterparts, torch: ModuleOutput, keras: ModuleOutput, by: By) -> Iterator[Correspondence]:
    """Yield the pair if neither tensor is matched, masks do not speak against it, and an order of axes fits."""
    if state.is_free(torch, keras) and masks_may_agree(torch, keras) and (fit := state.fit(torch, keras)):
        yield Correspondence(torch, keras, fit, by)


def _match_in_order(state: Counterparts, torch_outputs: list[ModuleOutput], keras_outputs: list[ModuleOutput]) -> None:
    """Match in order if there are as many tensors on both sides, or one module on each that is called as often.

    With one module on each side, it does not matter that torch's also returns its states, which have another shape. If
    one side's is called more often, nothing says which of its calls the other side does by a function.
    """
    fitting = [
        (torch, keras) for torch in torch_outputs for keras in keras_outputs if torch.tensor.size == keras.tensor.size
    ]
    torch_outputs, keras_outputs = (
        [candidate for candidate in side if any(candidate in pair for pair in fitting)]
        for side in (torch_outputs, keras_outputs)
    )
    if len(torch_outputs) != len(keras_outputs):
        # Without those of containers that pass on what a module in them returns.
        torch_outputs, keras_outputs = (
            [same[0] for same in grouped(side, lambda output: output.tensor.digest).values()]
            for side in (torch_outputs, keras_outputs)
        )
    modules = {torch.module for torch in torch_outputs}, {keras.module for keras in keras_outputs}
    if len(torch_outputs) != len(keras_outputs):
        are_single = (len(modules[0]), len(modules[1])) == (1, 1)
        if not are_single or _calls(state.torch, *modules[0]) != _calls(state.keras, *modules[1]):
            return
    for torch, keras in zip(torch_outputs, keras_outputs, strict=False):
        alike = torch.fused == keras.fused
        for candidate in _candidate(state, torch, keras, "weights") if alike else _after(state, torch, keras):
            _accept(state, candidate)


def _calls(outputs: Sequence[ModuleOutput], module: str) -> int:
    """Return how often a module is called: a tensor of another shape than its first is a further result of a call."""
    shapes = [output.tensor.shape for output in outputs if output.module == module]
    return shapes.count(shapes[0])


def _accept(state: Counterparts, candidate: Correspondence) -> bool:
    """Match two tensors, unless one has a counterpart already, or their difference is not seen after them."""
    apart = candidate.fit.distance
    if not state.is_free(candidate.torch, candidate.keras) or (apart > SAME and state.died_out(candidate.torch, apart)):
        return False
    state.add(candidate)
    return True


def _clear(state: Counterparts, group_of: Callable[[ModuleOutput], str]) -> list[Correspondence]:
    """Return the unambiguous pairs between each two anchors, among tensors of one group."""
    torch_gaps, keras_gaps = state.gaps()
    sides = (state.torch, torch_gaps, state.matched), (state.keras, keras_gaps, state.taken)
    ours, theirs = (
        by_key(
            ((gaps[output.number], group, output.tensor.size, output.tensor.family), output)
            for output in outputs
            if output.number not in taken and (group := group_of(output))
        )
        for outputs, gaps, taken in sides
    )
    return [candidate for key in ours if key in theirs for candidate in _unique(state, ours[key], theirs[key])]


def _unique(
    state: Counterparts, torch_outputs: list[ModuleOutput], keras_outputs: list[ModuleOutput]
) -> Iterator[Correspondence]:
    """Yield the candidates without a serious rival; those of one module on each side that returns several, in order."""
    modules = {output.module for output in torch_outputs}, {output.module for output in keras_outputs}
    if len(torch_outputs) == len(keras_outputs) > 1 and (len(modules[0]), len(modules[1])) == (1, 1):
        for torch, keras in zip(torch_outputs, keras_outputs, strict=True):
            yield from _candidate(state, torch, keras, "order")
        return
    pairs = [
        (torch, keras)
        for torch in torch_outputs
        for keras in keras_outputs
        if not (torch.owns and keras.owns) and torch.is_random == keras.is_random
    ]
    fits = [candidate for torch, keras in pairs for candidate in _candidate(state, torch, keras, "order")]
    if len(torch_outputs) == len(keras_outputs) and all(candidate.fit.distance <= SAME for candidate in fits):
        yield from (
            candidate
            for candidate in fits
            if torch_outputs.index(candidate.torch) == keras_outputs.index(candidate.keras)
        )
        return
    for candidate in fits:
        if candidate.torch.kind != candidate.keras.kind and candidate.fit.distance > RELATED:
            continue
        rivals = [other for other in fits if (other.torch is candidate.torch) != (other.keras is candidate.keras)]
        nearest = min((other.fit.distance for other in rivals), default=None)
        if nearest is None or candidate.fit.distance <= min(CLOSE, CLEARLY * nearest):
            yield candidate


def fed(state: Counterparts, torch: Arguments, keras: Arguments, told: Collection[str]) -> Iterator[Fed]:
    """Yield the modules and layers of which only one has its activation built in, and whose inputs are compared.

    `torch`, `keras`: the shapes of what modules and layers are given. `told`: torch's modules whose inputs are compared
    already, or must not be.
    """
    layers = {output.owns: output for output in _called_once(state.keras)}
    for module in _called_once(state.torch):
        layer = layers.get(module.owns)
        if layer is None or module.module in told or module.kind != layer.kind or module.fused == layer.fused:
            continue
        given, taken = torch.get(module.module, []), keras.get(layer.module, [])
        if len(given) == len(taken) == 1 and masks_may_agree(module, layer):
            shapes = tuple(given[0]), tuple(taken[0])
            identity = tuple(range(len(shapes[1])))
            order = identity if module.kind == LINEAR else order_by_channels(module.channels, layer.channels, shapes)
            if order is not None and tuple(shapes[1][axis] for axis in order) == shapes[0]:
                yield Fed(torch=module.module, keras=layer.module, axes=list(order))


def _called_once(outputs: Sequence[ModuleOutput]) -> list[ModuleOutput]:
    """Return what is returned by modules that are called once, and that share their weights with no other."""
    modules = [output.module for output in outputs]
    owners = [output.owns for output in outputs if output.leaf and output.owns]
    return [
        output
        for output in outputs
        if output.leaf and owners.count(output.owns) == 1 and modules.count(output.module) == 1
    ]
