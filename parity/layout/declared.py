"""Where the layouts of the two frameworks differ by design: the one list, with reason and source.

A rule turns what it declares into one form on both sides, and only that: what does not fit its
description exactly stays, and is a difference.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from parity.config.schema import Case, Transformer
from parity.layout.canonical import Devices, Layout, Transfer

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


def _on_device_0(mapping: dict[str, Devices], case: Case) -> dict[str, Devices]:
    """What every one of the case's devices holds, on device 0 alone."""
    everywhere = list(range(case.devices))
    return {name: [0] if devices == everywhere else devices for name, devices in mapping.items()}


def _copies(case: Case, sides: Sides) -> Sides | None:
    torch, keras = sides
    changed = replace(
        keras,
        parameters=_on_device_0(keras.parameters, case),
        optimizer_state=_on_device_0(keras.optimizer_state, case),
    )
    return Sides(torch, changed) if changed != keras else None


def _scattered(case: Case, sides: Sides) -> Sides | None:
    """nn.DataParallel's copies between device 0 and the others against one reduction of the gradients."""
    torch, keras = sides
    kept = [one for one in torch.transfers if 0 not in (one.source, one.target) or one.what == "activation"]
    returned = sum(one.bytes for one in torch.transfers if one.what == "gradient" and one.target == 0)
    reduced = keras.collectives.get("all_reduce", 0)
    others = {name: size for name, size in keras.collectives.items() if name != "all_reduce"}
    if kept == torch.transfers or not reduced or returned != reduced * (case.devices - 1):
        return None
    return Sides(replace(torch, transfers=kept), replace(keras, collectives=others))


def _once(case: Case, sides: Sides) -> Sides | None:
    """What every rank holds or computes in PyTorch, and device 0 alone in Keras."""
    torch, keras = sides
    everywhere = list(range(case.devices))

    def once(aspect: str) -> dict[str, Devices]:
        there = getattr(keras, aspect)
        return {
            name: [0] if devices == everywhere and there.get(name) == [0] else devices
            for name, devices in getattr(torch, aspect).items()
        }

    changed = replace(torch, **{aspect: once(aspect) for aspect in MAPPINGS})
    return Sides(changed, keras) if changed != torch else None


def _summed_at_device_0(case: Case, sides: Sides) -> Sides | None:
    """An all_reduce of parts against copies of the parts to device 0, and of what they are made of from there."""
    torch, keras = sides
    reduced = torch.collectives.get("all_reduce", 0)
    sent = [
        sum(one.bytes for one in keras.transfers if (one.source, one.target) == (device, 0))
        for device in range(1, case.devices)
    ]
    # A layer too narrow for all devices leaves the last ones without a part.
    if torch.transfers or not reduced or set(sent) - {0} != {reduced}:
        return None
    kept = [one for one in keras.transfers if 0 not in (one.source, one.target)]
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

    def as_often(one: Transfer) -> Transfer:
        often = sizes.get((one.source, one.target), 0)
        dealt_out = one.what == "activation" and one.source == 0
        return replace(one, bytes=often) if dealt_out and one.bytes * whole == often * once else one

    changed = replace(keras, transfers=[as_often(one) for one in keras.transfers])
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
        _once,
    ),
    Declared(
        ("tensor_parallel",),
        "collectives",
        "DTensor sums the parts by all_reduce; under tf.device they are copied to device 0 and added up there",
        "docs.pytorch.org/docs/stable/distributed.tensor.parallel.html, tensorflow.org/guide/gpu",
        _summed_at_device_0,
    ),
]
