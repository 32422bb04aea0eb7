"""The calls of a module, as recorded: what the formulas of all layers are held against, and what they must hold."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np

from parity.config import schema
from parity.config.sides import Switches
from parity.core.arrays import Array
from parity.diagnose.formula import Formula, Seen, Settings, require, seen
from parity.diagnose.topic import Side, numbered
from parity.trace import keys
from parity.trace.manifest import Tensors
from parity.trace.summary import Summary

Arguments = tuple[Array, ...]
PRECISIONS: Final = ("float64", "float32")  # to which a constant may have been rounded
FAR: Final = 2.0**-6  # fraction of the largest value; no rounding moves a value that far, not even to bfloat16


class Call(NamedTuple):
    """The calls of one module in one step on one replica."""

    name: str  # the module's path
    kind: str  # the kind of module, a key of layers.LAYERS
    calls: tuple[Arguments, ...]  # the tensor arguments of each call, one call for each micro-batch
    # As they were before the step, by the names within the module (weight, out_proj.weight).
    parameters: Mapping[str, Array]
    buffers: Mapping[str, Array]  # likewise (running_mean)
    training: bool
    # The arguments of the first call on every replica, this one's among them at `replica`.
    replicas: tuple[Arguments, ...]
    replica: int
    case: schema.Case
    step: int
    seen: Mapping[str, Seen]  # `output` of the first call, and the layer's `updated` buffers after the last
    number: int = 0  # the number of the first of the calls within the step, which dropout masks depend on
    held: tuple[Mapping[str, Array], ...] = ()  # the buffers of every replica before the step

    @property
    def inputs(self) -> Arguments:
        """Return the arguments of the first call."""
        return self.calls[0]

    @property
    def output(self) -> Array:
        """Return what the first call returned."""
        return self.seen["output"].value


class Layer(NamedTuple):
    """A kind of module: its formula, and what its calls consist of."""

    formula: Formula[Call]
    arguments: int = 1  # the number of its tensor arguments
    updated: tuple[str, ...] = ()  # the buffers that a call updates


def observe(side: Side, layer: Layer, module: str, number: int, step: int, replica: int) -> Call | None:
    """Return the calls of a module in a step from the `number`-th on; None where evidence is missing."""
    output = side.value(keys.key("activation", module, number), step, replica)
    calls = _calls(side.tensors(step, replica), layer, module)[number:]
    state = _state(side, step, replica)
    initial = side.file(None).recorded.items()
    own = [array for key, array in initial if key.partition("/")[2].startswith(f"{module}.")]
    # Parameters or buffers that were not recorded as they were, or not whole.
    lacks_state = bool(own) and (not state or any(isinstance(array, Summary) for array in own))
    if output is None or not calls or lacks_state:
        return None
    switches = side.trace.manifest.side
    if layer.updated and switches and switches.parts > 1 and step < side.case.steps:
        # Those that a step makes on its first device, where it cuts its batch into parts.
        calls = list(zip(*(_cut(array, switches)[: switches.accumulate] for array in calls[0]), strict=True))
        output = output._replace(value=_cut(output.value, switches)[0])
    after = layer.updated if number == 0 else ()
    updated = {name: side.value(f"buffer/{module}.{name}", step, replica) for name in after}
    of_replicas = (_calls(side.tensors(step, r), layer, module) for r in side.replicas)
    return Call(
        name=module,
        kind=side.modules.get(module, ""),
        calls=tuple(calls),
        parameters=_within(state, "parameter", module),
        buffers=_within(state, "buffer", module),
        training=step < side.case.steps,
        replicas=tuple(own[0] for own in of_replicas if own),
        replica=replica,
        case=side.case,
        step=step,
        seen={"output": output} | {name: value for name, value in updated.items() if value is not None},
        number=number,
        held=tuple(_within(_state(side, step, r), "buffer", module) for r in side.replicas),
    )


def _cut(array: Array, switches: Switches) -> list[Array]:
    return np.array_split(array, switches.parts) if array.ndim else [array] * switches.parts


def observe_low(side: Side, layer: Layer, high: Call) -> Call | None:
    """Return the call of the low run that is a module's first call in the high run; None if it was not recorded."""
    low, initial = side.tensors(0, 0, "low"), side.tensors(None, 0, "low")
    output, calls = low.get(f"activation/{high.name}"), tuple(_calls(low, layer, high.name))
    if output is None or not calls:
        return None
    return high._replace(
        calls=calls,
        parameters=_within(initial, "parameter", high.name),
        buffers=_within(initial, "buffer", high.name),
        replicas=calls[:1],
        seen={"output": seen(output)},
    )


def _calls(tensors: Tensors, layer: Layer, module: str) -> list[Arguments]:
    """Return the arguments of each call of a module."""
    inputs, count = numbered(tensors, "input", module), layer.arguments
    return [tuple(inputs[i : i + count]) for i in range(0, len(inputs) - count + 1, count)]


def _state(side: Side, step: int, replica: int) -> Tensors:
    """Return parameters and buffers as they were before a step; none where they were not recorded."""
    # nn.DataParallel keeps them on device 0 only.
    files = (side.tensors(None if step == 0 else step - 1, holder) for holder in (replica, 0))
    return next((file for file in files if any(key.startswith("parameter/") for key in file)), {})


def _within(tensors: Tensors, kind: str, module: str) -> dict[str, Array]:
    """Return a module's own tensors, by their names within the module."""
    prefix = f"{kind}/{module}."
    return {key.removeprefix(prefix): array for key, array in tensors.items() if key.startswith(prefix)}


def numbers(call: Call, axes: int | None = None) -> None:
    """Require that a call's arguments and output are numbers, and have that many axes if `axes` is given."""
    require(bool(call.calls and call.inputs), "arguments")
    for array in (*call.inputs, call.output):
        require(array.dtype.kind != "b", "numbers")
        require(axes is None or array.ndim == axes, f"{axes} axes")


def parameter(call: Call, name: str, axes: int) -> Array:
    """Return a parameter that a call must have, with that many axes and not empty."""
    require(name in call.parameters, name)
    array = call.parameters[name]
    require(array.ndim == axes and array.size > 0, f"{name} with {axes} axes")
    return array


def broadcasts(shape: tuple[int, ...], onto: tuple[int, ...]) -> bool:
    """Return whether an array of one shape can be combined with one of the other without changing the other's."""
    pairs = zip(reversed(shape), reversed(onto), strict=False)
    return len(shape) <= len(onto) and all(size in (1, whole) for size, whole in pairs)


def optional(call: Call, name: str, onto: tuple[int, ...]) -> None:
    """Require that a parameter, if there is one of that name, broadcasts onto a shape."""
    if name in call.parameters:
        require(broadcasts(call.parameters[name].shape, onto), f"{name} that broadcasts onto {onto}")


def per_channel(call: Call, name: str, channels: int) -> None:
    """Require that a parameter, if there is one of that name, has one value or one for each channel, in any shape."""
    if name in call.parameters:
        require(call.parameters[name].size in (1, channels), f"{name} of {channels} values")


def constant(value: float, precision: str) -> float:
    """Return the value as it is after rounding to a precision."""
    return float(np.dtype(precision).type(value))


def unless_far(
    compute: Callable[[Call, slice, Settings], Array], call: Call, settings: Settings, recorded: Array, few: int = 1
) -> Array:
    """Return a whole output. Raise NotApplicable as soon as its first `few` rows are far from what was recorded."""
    computed, expected = compute(call, slice(few), settings), recorded[:few]
    require(computed.shape == expected.shape, "an output of the recorded shape")
    is_far = np.abs(computed - expected).max(initial=0.0) > FAR * np.abs(expected).max(initial=0.0)
    require(not is_far, "an output that is near the recorded one")
    return compute(call, slice(None), settings)
