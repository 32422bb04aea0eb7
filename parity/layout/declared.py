"""Where the layouts of the two frameworks differ by design: the one list, with reason and source.

A rule turns what it declares into one form on both sides, and only that: what does not fit its
description exactly stays, and is a difference.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from parity.config.schema import Case, Transformer
from parity.trace.layout import Devices, Layout, Transfer

replace = msgspec.structs.replace
MAPPINGS = ("parameters", "optimizer_state", "compute", "backward")


class Sides(NamedTuple):
    """The layouts of both sides."""

    torch: Layout
    keras: Layout


class Declared(NamedTuple):
    """`apply` returns both layouts without the declared difference, or None where it does not occur."""

    strategies: tuple[str, ...]
    aspect: str
    reason: str
    source: str
    apply: Callable[[Case, Sides], Sides | None]


def _once(kept: dict[str, Devices], copied: dict[str, Devices], everywhere: Devices) -> dict[str, Devices]:
    """`copied`, with device 0 alone in the place of all devices where `kept` has device 0 alone."""
    return {
        name: [0] if devices == everywhere and kept.get(name) == [0] else devices for name, devices in copied.items()
    }


def _copies(case: Case, sides: Sides) -> Sides | None:
    """What nn.DataParallel has on device 0, and MirroredStrategy on each."""
    torch, keras = sides
    everywhere = list(range(case.devices))
    held = {
        aspect: _once(getattr(torch, aspect), getattr(keras, aspect), everywhere)
        for aspect in ("parameters", "optimizer_state")
    }
    changed = replace(keras, **held)
    return Sides(torch, changed) if changed != keras else None


def _scattered(case: Case, sides: Sides) -> Sides | None:
    """nn.DataParallel's copies between device 0 and each other one against a reduction of the gradients."""
    torch, keras = sides
    reduced = keras.collectives.get("all_reduce", 0)
    ways = {(one.what, one.source, one.target): one.bytes for one in torch.transfers}
    others = range(1, case.devices)
    gradients = [ways.pop(("gradient", device, 0), 0) for device in others]
    outputs = [(ways.pop(("output", device, 0), 0), ways.pop(("gradient", 0, device), 0)) for device in others]
    copies = {ways.pop(("parameter", 0, device), 0) for device in others}
    inputs = [ways.pop(("input", 0, device), 0) for device in others]
    usual = set(gradients) == {reduced} and all(there == back for there, back in outputs)
    if not reduced or not usual or len(copies) != 1 or 0 in copies or 0 in inputs:
        return None
    kept = [one for one in torch.transfers if (one.what, one.source, one.target) in ways]
    collectives = {name: size for name, size in keras.collectives.items() if name != "all_reduce"}
    return Sides(replace(torch, transfers=kept), replace(keras, collectives=collectives))


def _is_split(name: str) -> bool:
    """Whether a parameter, a slot or a module belongs to a pair of split layers, or to what is between them."""
    parts = name.split(".")
    at = next((place for place, part in enumerate(parts) if part in ("linear1", "linear2", "relu", "dropout")), None)
    return at is not None and parts[at : at + 2] != ["linear2", "bias"]


def _repeated(case: Case, sides: Sides) -> Sides | None:
    """What every rank holds or computes in PyTorch, and device 0 alone in Keras: all but the split layers."""
    torch, keras = sides
    everywhere = list(range(case.devices))

    def once(aspect: str) -> dict[str, Devices]:
        here = getattr(torch, aspect)
        whole = {name: devices for name, devices in here.items() if not _is_split(name)}
        return {**here, **_once(getattr(keras, aspect), whole, everywhere)}

    changed = replace(torch, **{aspect: once(aspect) for aspect in MAPPINGS})
    return Sides(changed, keras) if changed != torch else None


def _empty_parts(case: Case, sides: Sides) -> Sides | None:
    """Ranks that hold no part of a layer, since it is too narrow, and multiply by nothing all the same."""
    torch, keras = sides
    everywhere = list(range(case.devices))

    def holding(aspect: str, name: str, devices: Devices) -> Devices:
        block = name.rpartition(".")[0]
        held = torch.parameters.get(f"{block}.linear1.weight" if block else "linear1.weight")
        usual = _is_split(name) and devices == everywhere and getattr(keras, aspect).get(name) == held
        return held if usual and held else devices

    changed = replace(
        torch,
        compute={name: holding("compute", name, devices) for name, devices in torch.compute.items()},
        backward={name: holding("backward", name, devices) for name, devices in torch.backward.items()},
    )
    return Sides(changed, keras) if changed != torch else None


def _summed_at_device_0(case: Case, sides: Sides) -> Sides | None:
    """An all_reduce of parts against copies of the parts to device 0, and of what they are made of from there."""
    torch, keras = sides
    reduced = torch.collectives.get("all_reduce", 0)
    ways = {(one.what, one.source, one.target): one.bytes for one in keras.transfers}
    # A layer too narrow for all devices leaves the last ones without a part.
    holders = {device for name, held in keras.parameters.items() if name.endswith("linear1.weight") for device in held}
    users = sorted(holders - {0})
    # At half precision Keras's gradients of the inputs are of half the width: they are cast when all are added.
    widths = (1,) if case.precision == "float32" else (1, 2)
    given = set()
    for device in users:
        outputs, inputs = ways.pop(("activation", device, 0), 0), ways.pop(("activation", 0, device), 0)
        upstream, returned = ways.pop(("gradient", 0, device), 0), ways.pop(("gradient", device, 0), 0)
        given.add((inputs, outputs, upstream, returned))
    if torch.transfers or not reduced or len(given) != 1:
        return None
    ((inputs, outputs, upstream, returned),) = given
    if not inputs or outputs != upstream or reduced not in [outputs + returned * width for width in widths]:
        return None
    kept = [one for one in keras.transfers if (one.what, one.source, one.target) in ways]
    others = {name: size for name, size in torch.collectives.items() if name != "all_reduce"}
    return Sides(replace(torch, collectives=others), replace(keras, transfers=kept))


def _sent_once(case: Case, sides: Sides) -> Sides | None:
    """The encoder's output, which the key or value projections of all decoder layers on one device take.

    Each attention's projection there has one tensor copied in PyTorch, so that these are
    encoder_layers + 2 * decoder_layers; TensorFlow copies the encoder's output for all of them once.
    """
    if not isinstance(case.model, Transformer):
        return None
    torch, keras = sides
    layers, decoders = case.model.encoder_layers, case.model.decoder_layers
    whole, once = layers + 2 * decoders, layers + decoders + 1
    sizes = {(one.source, one.target): one.bytes for one in torch.transfers if one.what == "activation"}

    widths = (1,) if case.precision == "float32" else (1, 2)

    def as_often(one: Transfer) -> Transfer:
        often = sizes.get((one.source, one.target), 0)
        dealt_out = one.what == "activation" and one.source == 0
        usual = dealt_out and often * once in [one.bytes * whole * width for width in widths]
        return replace(one, bytes=often) if usual else one

    changed = replace(keras, transfers=[as_often(one) for one in keras.transfers])
    return Sides(torch, changed) if changed != keras else None


def _cast_before_the_copy(case: Case, sides: Sides) -> Sides | None:
    """At half precision some of what is copied is float32 in PyTorch: up to twice the bytes, and never fewer."""
    if case.precision == "float32":
        return None
    torch, keras = sides
    sizes = {(one.what, one.source, one.target): one.bytes for one in torch.transfers}

    def wide(one: Transfer) -> Transfer:
        size = sizes.get((one.what, one.source, one.target), 0)
        return replace(one, bytes=size) if one.bytes <= size <= 2 * one.bytes else one

    changed = replace(keras, transfers=[wide(one) for one in keras.transfers])
    return Sides(torch, changed) if changed != keras else None


DECLARED: list[Declared] = [
    Declared(
        ("data_parallel",),
        "parameters",
        "nn.DataParallel keeps them on device 0 and copies them at each forward; MirroredStrategy keeps a copy on each",
        "docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html, tensorflow.org/guide/distributed_training",
        _copies,
    ),
    Declared(
        ("data_parallel",),
        "transfers",
        "nn.DataParallel scatters, replicates, gathers and adds up through device 0; MirroredStrategy reduces",
        "torch/nn/parallel/data_parallel.py, tensorflow.org/guide/distributed_training",
        _scattered,
    ),
    Declared(
        ("branch_parallel", "round_robin", "send_recv", "pipeline", "hybrid"),
        "transfers",
        "at half precision a Keras layer takes and gives half floats; torch.autocast casts in the ops that want them, "
        "behind a copy, and leaves what norms and embeddings give in float32",
        "docs.pytorch.org/docs/stable/amp.html, keras.io/api/mixed_precision",
        _cast_before_the_copy,
    ),
    Declared(
        ("branch_parallel",),
        "transfers",
        "TensorFlow copies a tensor once to a device, however many layers take it there; PyTorch for each layer",
        "tensorflow/core/graph/graph_partition.cc",
        _sent_once,
    ),
    Declared(
        ("tensor_parallel",),
        "parameters, compute",
        "every rank runs the whole program but for the split layers; under tf.device all else is on device 0 once",
        "docs.pytorch.org/docs/stable/distributed.tensor.parallel.html, tensorflow.org/guide/gpu",
        _repeated,
    ),
    Declared(
        ("tensor_parallel",),
        "compute",
        "a layer too narrow for all devices has no part on the last ones: the ranks there multiply by an empty matrix",
        "docs.pytorch.org/docs/stable/distributed.tensor.html (uneven sharding)",
        _empty_parts,
    ),
    Declared(
        ("tensor_parallel",),
        "collectives",
        "DTensor sums the parts by all_reduce; under tf.device they are copied to device 0 and added up there",
        "docs.pytorch.org/docs/stable/distributed.tensor.parallel.html, tensorflow.org/guide/gpu",
        _summed_at_device_0,
    ),
]
