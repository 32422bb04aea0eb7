"""Find the layers that are given the same as a module of torch's, though they return something else.

A layer of Keras's often has its activation built in, which is a module or a function of its own in torch. The two then
return tensors that do not correspond. What they are given does, if they own the same weights and do the same with them.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from parity.pairs.activations.counterparts import Counterparts, ModuleOutput, masks_may_agree
from parity.pairs.activations.layouts import order_by_channels
from parity.pairs.activations.values import Order, Shape
from parity.trace.mapping import Fed

LINEAR = "linear"
Arguments = Mapping[str, Sequence[Shape]]


def fed(state: Counterparts, torch: Arguments, keras: Arguments, told: Collection[str]) -> Iterator[Fed]:
    """Yield the modules and layers of which only one has its activation built in, and whose inputs are compared.

    Args:
        state: what both sides return.
        torch: the shapes of what torch's modules are given.
        keras: the same of Keras's layers.
        told: torch's modules whose inputs are compared already, or must not be.
    """
    layers = {output.owns: output for output in _called_once(state.keras)}
    for module in _called_once(state.torch):
        layer = layers.get(module.owns)
        if layer is None or module.module in told or module.kind != layer.kind or module.fused == layer.fused:
            continue
        given, taken = torch.get(module.module, []), keras.get(layer.module, [])
        if len(given) == len(taken) == 1 and masks_may_agree(module, layer):
            order = _order(module, layer, (tuple(given[0]), tuple(taken[0])))
            if order is not None:
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


def _order(module: ModuleOutput, layer: ModuleOutput, shapes: tuple[Shape, Shape]) -> Order | None:
    """Return the order in which the axes of what Keras's layer is given are torch's; None if the layers do not tell."""
    identity = tuple(range(len(shapes[1])))
    order = identity if module.kind == LINEAR else order_by_channels(module.channels, layer.channels, shapes)
    fits = order is not None and tuple(shapes[1][axis] for axis in order) == shapes[0]
    return order if fits else None
