"""What ran where, read from the graphs that TensorFlow executed: one per device, with the copies between.

For each executed function the run metadata hold a graph per device ("partition"). A node's name tells
what it belongs to: the probe opens the name scope `module.PATH` around each layer's call, and
TensorFlow puts the nodes of its gradient under `gradient_tape/module.PATH`. A copy between devices is a
_Send node on one and a _Recv node on the other. What the recording itself does stands in a scope of its own.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import tensorflow as tf

from keras_impl.harness import devices
from parity.trace.layout import Transfer, total

RECORDING = "recording"
MODULE = "module."
BACKWARD = "gradient_tape/"
OWNER = re.compile(rf"({BACKWARD})?{re.escape(MODULE)}([^/]+)/")
# Nodes that compute nothing: where a variable is read is where it lives.
PASSIVE = {
    "ReadVariableOp",
    "Const",
    "NoOp",
    "Identity",
    "IdentityN",
    "_Arg",
    "_Retval",
    "_Send",
    "_Recv",
    "_HostSend",
    "_HostRecv",
}
REDUCTIONS = ("CollectiveReduce", "NcclAllReduce", "CollectiveGather")


def scope(path: str) -> str:
    """The name scope of a module, the same wherever it is opened."""
    return f"{MODULE}{path}/"


class Evidence(NamedTuple):
    """Of one step: by module the devices, and what went between devices."""

    compute: dict[str, list[int]]
    backward: dict[str, list[int]]
    transfers: list[Transfer]
    collectives: dict[str, int]


class Copy(NamedTuple):
    """A tensor that went from one logical device to another."""

    source: int
    target: int
    bytes: int
    made_by: tf.compat.v1.NodeDef


class Partitions:
    """The executed graphs, their nodes by name."""

    def __init__(self, graphs: Iterable[tf.compat.v1.GraphDef], traced: list[tf.Graph]):
        self.traced = {operation.name: operation for graph in traced for operation in graph.get_operations()}
        # Where another function calls the step, as fit's does, both run as one graph, the step's names behind a prefix.
        self.prefix = recorded(graphs)[0].partition(RECORDING)[0]
        self.nodes = {node.name: node for graph in graphs for node in graph.node}
        self.sends = {_way(node): node for node in self.nodes.values() if node.op in ("_Send", "_HostSend")}
        self.users = defaultdict(list)
        for node in self.nodes.values():
            for name in self.inputs(node):
                self.users[name].append(node.name)
        self.gradients = self._downstream(name for name in self.nodes if BACKWARD in name)

    def inputs(self, node: tf.compat.v1.NodeDef) -> Iterator[str]:
        """The nodes whose tensors a node takes, across devices too."""
        if node.op in ("_Recv", "_HostRecv"):
            yield self.sends[_way(node)].name
        else:
            yield from (_name(tensor) for tensor in node.input if not tensor.startswith("^"))

    def evidence(self, each: int) -> Evidence:
        """What happened, with `each` logical devices per replica."""
        compute, backward = defaultdict(set), defaultdict(set)
        for node in self.nodes.values():
            found, device = OWNER.search(node.name), devices.number(node.device)
            if found and device is not None and node.op not in PASSIVE and RECORDING not in node.name:
                (backward if found[1] else compute)[found[2]].add(device)
        copies = list(self._copies())
        inside = [one for one in copies if one.source // each == one.target // each]
        across = [one for one in copies if one.source // each != one.target // each]
        transfers = [
            Transfer(what=self._what(one), source=one.source, target=one.target, bytes=one.bytes) for one in inside
        ]
        return Evidence(_sorted(compute), _sorted(backward), total(transfers), self._collectives(across, each))

    def _what(self, copy: Copy) -> str:
        if copy.made_by.name in self.gradients:
            return "gradient"
        return "parameter" if copy.made_by.op == "ReadVariableOp" else "activation"

    def _copies(self) -> Iterator[Copy]:
        """Tensors with an axis that went from device to device, but for the recording."""
        for node in self.nodes.values():
            if node.op not in ("_Recv", "_HostRecv") or all(RECORDING in user for user in self.users[node.name]):
                continue
            tensor = self.sends[_way(node)].input[0]
            source, target = (devices.number(node.attr[end].s.decode()) for end in ("send_device", "recv_device"))
            # A control dependency between devices sends an empty constant; a caller deals out the inputs.
            between = None not in (source, target) and source != target
            if not between or "/ctrl/" in tensor or not tensor.startswith(self.prefix):
                continue
            if size := self._bytes(tensor):
                yield Copy(source, target, size, self.nodes[_name(tensor)])

    def _collectives(self, across: list[Copy], each: int) -> dict[str, int]:
        """What a replica gives into reductions of gradients, or gets of replica 0's buffers."""
        given = defaultdict(lambda: defaultdict(int))
        for node in self.nodes.values():
            if node.op.startswith(REDUCTIONS) and RECORDING not in node.name:
                given[self._operation(node)][devices.number(node.device)] += self._bytes(node.input[0])
        for one in across:
            # By way of replica 0: to it what each replica gives, back from it the same for all.
            if one.target < one.source:
                given[self._operation(one.made_by)][one.source // each] += one.bytes
        return {operation: max(sizes.values()) for operation, sizes in given.items() if max(sizes.values())}

    def _operation(self, node: tf.compat.v1.NodeDef) -> str:
        return "all_reduce" if node.name in self.gradients else "broadcast"

    def _bytes(self, tensor: str) -> int:
        """0 without an axis."""
        name, _, output = tensor.partition(":")
        made = self.traced[name.removeprefix(self.prefix)].outputs[int(output or 0)]
        return math.prod(made.shape.as_list()) * made.dtype.size if made.shape.rank else 0

    def _downstream(self, names: Iterable[str]) -> set[str]:
        """These nodes and all that take anything from them."""
        found, left = set(), list(names)
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left += self.users[name]
        return found


def recorded(graphs: Iterable[tf.compat.v1.GraphDef]) -> list[str]:
    """What the probe has put in."""
    return [node.name for graph in graphs for node in graph.node if RECORDING in node.name]


def _way(node: tf.compat.v1.NodeDef) -> tuple[bytes, bytes]:
    """What a _Send and its _Recv have in common."""
    return node.attr["tensor_name"].s, node.attr["recv_device"].s


def _name(tensor: str) -> str:
    return tensor.partition(":")[0]


def _sorted(found: dict[str, set[int]]) -> dict[str, list[int]]:
    return {name: sorted(numbers) for name, numbers in sorted(found.items())}
