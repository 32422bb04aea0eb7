"""The differences that the two frameworks' device layouts have by design, each with its reason and source.

A rule removes exactly the difference that it declares, by giving both layouts the same form there. What
does not fit the rule's description exactly is left as it is, and is reported as a difference.
"""

from collections.abc import Callable, Container
from typing import NamedTuple

import msgspec

from parity.config.base import BaseStrategy
from parity.config.schema import Case, Transformer
from parity.config.strategies import BranchParallel, DataParallel, RoundRobin, Staged, TensorParallel
from parity.trace.layout import Devices, Layout, Route, Transfer

replace = msgspec.structs.replace
MAPPINGS = ("parameters", "optimizer_state", "compute", "backward")


class Sides(NamedTuple):
    torch: Layout
    keras: Layout


class Declared(NamedTuple):
    """A declared difference for some strategies; `apply` returns both layouts without it, if it occurs in them."""

    strategies: tuple[type[BaseStrategy], ...]
    aspect: str
    reason: str
    source: str
    apply: Callable[[Case, Sides], Sides]


def _once(kept: dict[str, Devices], copied: dict[str, Devices], case: Case) -> dict[str, Devices]:
    """Return `copied`, with only device 0 instead of all devices for each name that `kept` has on device 0 alone."""
    is_copy = {name: kept.get(name) == [0] and devices == list(range(case.devices)) for name, devices in copied.items()}
    return {name: [0] if is_copy[name] else devices for name, devices in copied.items()}


def _copies(case: Case, sides: Sides) -> Sides:
    """Align what nn.DataParallel holds on device 0 with MirroredStrategy's copies on each device."""
    torch, keras = sides
    parameters = _once(torch.parameters, keras.parameters, case)
    slots = _once(torch.optimizer_state, keras.optimizer_state, case)
    return Sides(torch, replace(keras, parameters=parameters, optimizer_state=slots))


def _scattered(case: Case, sides: Sides) -> Sides:
    """Align nn.DataParallel's copies between device 0 and the others with MirroredStrategy's gradient reduction.

    It applies only if each device's gradients have the bytes of the reduction, and those of the outputs theirs.
    """
    torch, keras = sides
    reduced, routes = keras.collectives.get("all_reduce", 0), torch.routes
    others = range(1, case.devices)
    gradients = [routes.pop(("gradient", device, 0), 0) for device in others]
    outputs = [(routes.pop(("output", device, 0), 0), routes.pop(("gradient", 0, device), 0)) for device in others]
    copies = {routes.pop(("parameter", 0, device), 0) for device in others}
    inputs = [routes.pop(("input", 0, device), 0) for device in others]
    usual = set(gradients) == {reduced} and all(forward == backward for forward, backward in outputs)
    if not reduced or not usual or len(copies) != 1 or 0 in copies or 0 in inputs:
        return sides
    return Sides(_on_routes(torch, routes), _unreduced(keras))


def _on_routes(layout: Layout, routes: Container[Route]) -> Layout:
    return replace(layout, transfers=[transfer for transfer in layout.transfers if transfer.route in routes])


def _unreduced(layout: Layout) -> Layout:
    collectives = {name: size for name, size in layout.collectives.items() if name != "all_reduce"}
    return replace(layout, collectives=collectives)


def _is_split(name: str) -> bool:
    """Return whether a parameter, slot or module belongs to a pair of layers that tensor parallelism splits.

    The modules between the two layers are included. The second layer's bias is not split: it is added once.
    """
    parts = name.split(".")
    at = next((index for index, part in enumerate(parts) if part in ("linear1", "linear2", "relu", "dropout")), None)
    return at is not None and parts[at : at + 2] != ["linear2", "bias"]


def _repeated(case: Case, sides: Sides) -> Sides:
    """Align what every rank holds and computes in PyTorch with Keras's device 0, except for the split layers."""
    torch, keras = sides

    def once(aspect: str) -> dict[str, Devices]:
        recorded = getattr(torch, aspect)
        whole = {name: devices for name, devices in recorded.items() if not _is_split(name)}
        return {**recorded, **_once(getattr(keras, aspect), whole, case)}

    return Sides(replace(torch, **{aspect: once(aspect) for aspect in MAPPINGS}), keras)


def _empty_parts(case: Case, sides: Sides) -> Sides:
    """Remove PyTorch's computation on ranks without a part of a narrow layer, which multiply by an empty matrix."""
    torch, keras = sides
    everywhere = list(range(case.devices))

    def holding(aspect: str) -> dict[str, Devices]:
        recorded = dict(getattr(torch, aspect))
        for name, devices in recorded.items():
            block = name.rpartition(".")[0]
            held = torch.parameters.get(f"{block}.linear1.weight" if block else "linear1.weight")
            usual = _is_split(name) and devices == everywhere and getattr(keras, aspect).get(name) == held
            recorded[name] = held if usual and held else devices
        return recorded

    return Sides(replace(torch, compute=holding("compute"), backward=holding("backward")), keras)


def _summed_at_device_0(case: Case, sides: Sides) -> Sides:
    """Align PyTorch's all_reduce of partial results with Keras's copies to device 0, where they are added.

    In Keras, each other device gets the inputs and the upstream gradient from device 0 and sends it partial outputs and
    partial gradients of the inputs. It applies only if these have the bytes of the all_reduce.
    """
    torch, keras = sides
    reduced, routes = torch.collectives.get("all_reduce", 0), keras.routes
    # If a layer is too narrow for all devices, the last ones hold no part of it.
    holders = {device for name, held in keras.parameters.items() if name.endswith("linear1.weight") for device in held}
    amounts = set()
    for device in holders - {0}:
        outputs, inputs = routes.pop(("activation", device, 0), 0), routes.pop(("activation", 0, device), 0)
        upstream, returned = routes.pop(("gradient", 0, device), 0), routes.pop(("gradient", device, 0), 0)
        amounts.add((inputs, outputs, upstream, returned))
    if torch.transfers or not reduced or len(amounts) != 1:
        return sides
    ((inputs, outputs, upstream, returned),) = amounts
    # At half precision, Keras's gradients of the inputs may have half the bytes: they are cast only when added.
    if not inputs or outputs != upstream or reduced not in [outputs + returned * width for width in _widths(case)]:
        return sides
    return Sides(_unreduced(torch), _on_routes(keras, routes))


def _widths(case: Case) -> tuple[int, ...]:
    """Return how many times the bytes of a tensor in the run precision the same tensor may have."""
    return (1,) if case.precision == "float32" else (1, 2)


def _sent_once(case: Case, sides: Sides) -> Sides:
    """Align the copies of the encoder's output, which the cross-attention of all decoder layers takes.

    In PyTorch, each attention copies a tensor to the device of its key or value projection: encoder_layers +
    2 * decoder_layers copies of equal size. TensorFlow copies the encoder's output only once for all decoder layers:
    encoder_layers + decoder_layers + 1 copies.
    """
    if not isinstance(case.model, Transformer):
        return sides
    layers, decoders = case.model.encoder_layers, case.model.decoder_layers
    whole, once = layers + 2 * decoders, layers + decoders + 1

    def is_sent_once(transfer: Transfer, size: int) -> bool:
        dealt_out = transfer.what == "activation" and transfer.source == 0
        return dealt_out and size * once in [transfer.bytes * whole * width for width in _widths(case)]

    return _as_in_torch(sides, is_sent_once)


def _as_in_torch(sides: Sides, is_aligned: Callable[[Transfer, int], bool]) -> Sides:
    """Give transfers of Keras the bytes that PyTorch's have on the same route, where `is_aligned` allows it."""
    pairs = ((transfer, sides.torch.routes.get(transfer.route, 0)) for transfer in sides.keras.transfers)
    transfers = [replace(each, bytes=size) if is_aligned(each, size) else each for each, size in pairs]
    return sides._replace(keras=replace(sides.keras, transfers=transfers))


def _cast_before_the_copy(case: Case, sides: Sides) -> Sides:
    """Align copies that are half floats in Keras, and float32 in PyTorch, with up to twice the bytes and no fewer."""
    if case.precision == "float32":
        return sides
    return _as_in_torch(sides, lambda transfer, size: transfer.bytes <= size <= 2 * transfer.bytes)


DECLARED: list[Declared] = [
    Declared(
        (DataParallel,),
        "parameters",
        "nn.DataParallel keeps them on device 0 and copies them at each forward; MirroredStrategy keeps a copy on each",
        "docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html, tensorflow.org/guide/distributed_training",
        _copies,
    ),
    Declared(
        (DataParallel,),
        "transfers",
        "nn.DataParallel scatters, replicates, gathers and adds up through device 0; MirroredStrategy has a copy of "
        "the model on each device and only reduces the gradients",
        "torch/nn/parallel/data_parallel.py, tensorflow.org/guide/distributed_training",
        _scattered,
    ),
    Declared(
        (BranchParallel, RoundRobin, Staged),
        "transfers",
        "at half precision a Keras layer casts its inputs and returns half floats; torch.autocast casts inside the "
        "ops, after a copy, and leaves the outputs of norms and embeddings in float32",
        "docs.pytorch.org/docs/stable/amp.html, keras.io/api/mixed_precision",
        _cast_before_the_copy,
    ),
    Declared(
        (BranchParallel,),
        "transfers",
        "TensorFlow copies a tensor to a device once, however many layers use it there; PyTorch once for each layer",
        "tensorflow/core/graph/graph_partition.cc",
        _sent_once,
    ),
    Declared(
        (TensorParallel,),
        "parameters, compute",
        "in PyTorch every rank runs all layers and only the split ones in part; under tf.device all layers but the "
        "split ones are on device 0 alone",
        "docs.pytorch.org/docs/stable/distributed.tensor.parallel.html, tensorflow.org/guide/gpu",
        _repeated,
    ),
    Declared(
        (TensorParallel,),
        "compute",
        "a layer too narrow for all devices has no part on the last ones; PyTorch's ranks there multiply by an empty "
        "matrix",
        "docs.pytorch.org/docs/stable/distributed.tensor.html (uneven sharding)",
        _empty_parts,
    ),
    Declared(
        (TensorParallel,),
        "collectives",
        "DTensor sums the partial results by all_reduce; under tf.device they are copied to device 0 and added there",
        "docs.pytorch.org/docs/stable/distributed.tensor.parallel.html, tensorflow.org/guide/gpu",
        _summed_at_device_0,
    ),
]
