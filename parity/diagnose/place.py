"""Find the module that is responsible for a divergence: its inputs agree and its output does not."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from parity.results import Divergence
from parity.trace import keys
from parity.trace.keys import MODEL, plain
from parity.verdict.traces import Unequal

SEQUENCE: Final = "Sequential"  # the kind of nn.Sequential


def responsible_module(first: Divergence, unequal: Collection[Unequal], modules: Mapping[str, str]) -> Divergence:
    """Return the first divergence, moved to the enclosing module if the fault lies between two modules.

    If the input of a module differs although everything computed before it agrees, its caller has passed on something
    else than on the other side: a forgotten shortcut, for example. If the caller's own input differs already, the fault
    lies with the caller's caller, and so on. A sequence passes on what it is given itself.

    `unequal`: all tensors that differ. `modules`: the kinds of the recorded modules, by path.
    """
    name = plain(first.name)
    if first.kind != "input" or name not in modules:
        return first
    inputs = {plain(tensor.name) for tensor in unequal if tensor.kind == "input"}
    owner, inner = name, ""
    while owner and (owner in inputs or (modules[owner] == SEQUENCE and inner == f"{owner}.0")):
        owner, inner = around(owner, modules), owner
    reason = f"its submodules agree up to here, but the input that it passes to {name} differs: {first.reason}"
    return msgspec.structs.replace(first, kind="activation", name=owner or MODEL, reason=reason)


def module_around_functions(
    first: Divergence, unshared: Collection[str], recorded: Collection[str], modules: Mapping[str, str]
) -> Divergence:
    """Return the first divergence, moved to the enclosing module if functions before its own may be at fault.

    That is so if functions make what its module is given of what other modules around it have returned, as in an
    attention before its last projection, and the result could not be compared.

    `unshared`: the keys of those inputs of modules that no other module returned, and that could not be compared.
    `recorded`: the keys of all tensors that the reference recorded in this step, in order.
    """
    name = plain(first.name)
    owner = around(name, modules)
    if first.kind != "activation" or not owner or keys.key("input", name) not in unshared:
        return first
    before = itertools.takewhile(lambda key: key != keys.key("input", name), recorded)
    returned = (keys.split(key) for key in before)
    if not any(kind == "activation" and around(plain(path), modules) == owner for kind, path in returned):
        return first
    reason = f"{first.name} differs, and what {owner} passes to it could not be compared: {first.reason}"
    return msgspec.structs.replace(first, name=owner, reason=reason)


def start_of_noise(first: Divergence, noisier: Mapping[str, Sequence[str]]) -> Divergence:
    """Return the first divergence, moved to where noise begins: `noisier` has each side's keys in execution order."""
    for tensors in noisier.values():
        if first.step == 0 and keys.key(first.kind, first.name) in tensors:
            kind, name = keys.split(tensors[0])
            return msgspec.structs.replace(first, kind=kind, name=name)
    return first


def with_module(first: Divergence, classes: Mapping[str, str]) -> Divergence:
    """Return the first divergence with the class of its module; `classes` has those of the reference, by path."""
    path = keys.owner(first.kind, first.name)
    return msgspec.structs.replace(first, module="" if path is None else classes.get(path, ""))


def around(module: str, modules: Collection[str]) -> str:
    """Return the nearest recorded module that encloses a module; "" is the whole model."""
    owner = module.rpartition(".")[0]
    while owner and owner not in modules:
        owner = owner.rpartition(".")[0]
    return owner


def by_layout(difference: str) -> Divergence:
    """Return a line of the layout's differences as the first divergence."""
    name = difference.partition(": ")[2].partition(": ")[0] or difference
    return Divergence(step=0, kind="layout", name=name, replica=0, bits=None, reason=difference)
