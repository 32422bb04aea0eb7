"""Who is guilty: the module whose inputs agree and whose output does not."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from parity.core.names import MODEL
from parity.results import Divergence
from parity.trace import keys
from parity.verdict.traces import Unequal


def guilty(first: Divergence, unequal: Collection[Unequal], modules: Mapping[str, str]) -> Divergence:
    """The first divergence, placed at the module around it where the fault lies between modules.

    What goes into a module differs though everything before it agrees: then the module that calls it has
    made something else of it, or the one that calls that, if its own input differs already.
    """
    name = plain(first.name)
    if first.kind != "input" or name not in modules:
        return first
    inputs = {plain(each.name) for each in unequal if each.kind == "input"}
    owner = name
    while owner and owner in inputs:
        owner = around(owner, modules)
    reason = f"its children agree, but what it hands to {name} does not: {first.reason}"
    return msgspec.structs.replace(first, kind="activation", name=owner or MODEL, reason=reason)


def noisy(first: Divergence, noisier: Mapping[str, Sequence[str]]) -> Divergence:
    """The first divergence, placed at the first tensor of those that are noisier, if it is one of them.

    Noise is a divergence where it can be seen; it may have begun where it could not.
    """
    for tensors in noisier.values():
        if first.step == 0 and keys.key(first.kind, first.name) in tensors:
            kind, name = keys.split(tensors[0])
            return msgspec.structs.replace(first, kind=kind, name=name)
    return first


def around(module: str, modules: Collection[str]) -> str:
    """The nearest module around a module, as far as was recorded; "" is the whole model."""
    owner = module.rpartition(".")[0]
    while owner and owner not in modules:
        owner = owner.rpartition(".")[0]
    return owner


def plain(name: str) -> str:
    """The module of a tensor's name: without the number of the call and the mark of a shard."""
    return name.partition("#")[0].partition("@")[0]


def number(name: str) -> int:
    """The number of the call in a tensor's name."""
    return int(name.partition("#")[2] or 0)


def by_layout(difference: str) -> Divergence:
    """A difference of layouts as the first divergence."""
    _, _, rest = difference.partition(": ")
    return Divergence(
        step=0, kind="layout", name=rest.partition(": ")[0] or difference, replica=0, bits=None, reason=difference
    )
