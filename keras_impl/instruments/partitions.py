"""What ran where: reads the graphs that TensorFlow executed, one per device, and the copies between them.

The run metadata hold one graph per device ("partition") for each executed function. A node's name tells which layer it
belongs to: the probe opens the name scope `module.PATH` around each layer's call, and TensorFlow puts the gradient's
nodes under `gradient_tape/module.PATH`. A copy between devices is a _Send node on one and a _Recv node on the other.
The probe's own ops are in a scope of their own, and are left out.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from keras_impl.instruments import devices
from parity.trace.layout import Transfer, total

RECORDING = "recording"
MODULE = "module."
BACKWARD = "gradient_tape/"
OWNER = re.compile(rf"({BACKWARD})?{re.escape(MODULE)}([^/]+)/")
SENDS, RECEIVES = ("_Send", "_HostSend"), ("_Recv", "_HostRecv")
# Nodes that compute nothing; reading a variable, for example, happens where the variable lives.
PASSIVE = {"ReadVariableOp", "Const", "NoOp", "Identity", "IdentityN", "_Arg", "_Retval", *SENDS, *RECEIVES}
REDUCTIONS = ("CollectiveReduce", "NcclAllReduce", "CollectiveGather")


def scope(path: str) -> str:
    """Return a module's name scope, which is the same wherever it is opened."""
    return f"{MODULE}{path}/"


class Copy(NamedTuple):
    """A tensor that was copied from one logical device to another."""

    source: int
    target: int
    bytes: int
    made_by: tf.compat.v1.NodeDef


class Partitions:
    """The executed graphs, with their nodes by name; ops in the name scope `from_host` take the batch from the host."""

    def __init__(self, graphs: Iterable[tf.compat.v1.GraphDef], traced: list[tf.Graph], from_host: str):
        self.apart = RECORDING, from_host
        self.traced = {operation.name: operation for graph in traced for operation in graph.get_operations()}
        # If another function calls the step (as in fit), both run as one graph, and the step's names have a prefix.
        self.prefix = recorded(graphs)[0].partition(RECORDING)[0]
        self.nodes = {node.name: node for graph in graphs for node in graph.node}
        self.sends = {_way(node): node for node in self.nodes.values() if node.op in SENDS}
        self.users = defaultdict(list)
        for node in self.nodes.values():
            for name in self.inputs(node):
                self.users[name].append(node.name)
        self.gradients = self._downstream(name for name in self.nodes if BACKWARD in name)

    def inputs(self, node: tf.compat.v1.NodeDef) -> Iterator[str]:
        """Yield the names of the nodes whose outputs a node takes, across devices as well."""
        if node.op in RECEIVES:
            yield self.sends[_way(node)].name
        else:
            yield from (_name(tensor) for tensor in node.input if not tensor.startswith("^"))

    def evidence(self, devices_per_replica: int) -> dict[str, Any]:
        """Return what the step did, as fields of a Layout."""
        compute, backward = defaultdict(set), defaultdict(set)
        for node in self.nodes.values():
            owner, device = OWNER.search(node.name), devices.number(node.device)
            if owner and device is not None and node.op not in PASSIVE and RECORDING not in node.name:
                (backward if owner[1] else compute)[owner[2]].add(device)
        across, transfers = [], []
        for copy in self._copies():
            if copy.source // devices_per_replica != copy.target // devices_per_replica:
                across.append(copy)
                continue
            what = "parameter" if copy.made_by.op == "ReadVariableOp" else "activation"
            what = "gradient" if copy.made_by.name in self.gradients else what
            transfers.append(Transfer(what=what, source=copy.source, target=copy.target, bytes=copy.bytes))
        collectives = self._collectives(across, devices_per_replica)
        return {
            "compute": _sorted(compute),
            "backward": _sorted(backward),
            "transfers": total(transfers),
            "collectives": collectives,
        }

    def _copies(self) -> Iterator[Copy]:
        """Yield the tensors copied between devices.

        Left out are scalars, what only the recording uses, and the batch that a strategy takes from the host.
        """
        for node in self.nodes.values():
            used = any(not any(scope in name for scope in self.apart) for name in self.users[node.name])
            if node.op not in RECEIVES or not used:
                continue
            tensor = self.sends[_way(node)].input[0]
            source, target = (devices.number(node.attr[end].s.decode()) for end in ("send_device", "recv_device"))
            # A control dependency between devices sends an empty constant, and names without the prefix belong to the
            # caller, which distributes the inputs.
            between = None not in (source, target) and source != target
            if not between or "/ctrl/" in tensor or not tensor.startswith(self.prefix):
                continue
            if size := self._bytes(tensor):
                yield Copy(source, target, size, self.nodes[_name(tensor)])

    def _collectives(self, across: list[Copy], devices_per_replica: int) -> dict[str, int]:
        """Return the bytes of each collective, per replica.

        They are what a replica contributes to reductions of gradients, or receives of replica 0's buffers.
        """
        sizes_by_operation = defaultdict(lambda: defaultdict(int))
        for node in self.nodes.values():
            if node.op.startswith(REDUCTIONS) and RECORDING not in node.name:
                sizes_by_operation[self._operation(node)][devices.number(node.device)] += self._bytes(node.input[0])
        for copy in across:
            # ReductionToOneDevice goes by way of replica 0: each replica sends its part, and the same sum comes back.
            # Count the sending direction only.
            if copy.target < copy.source:
                sizes_by_operation[self._operation(copy.made_by)][copy.source // devices_per_replica] += copy.bytes
        return {
            operation: max(sizes.values()) for operation, sizes in sizes_by_operation.items() if max(sizes.values())
        }

    def _operation(self, node: tf.compat.v1.NodeDef) -> str:
        return "all_reduce" if node.name in self.gradients else "broadcast"

    def _bytes(self, tensor: str) -> int:
        """Return the size of a tensor; 0 for a scalar."""
        name, _, output = tensor.partition(":")
        output_tensor = self.traced[name.removeprefix(self.prefix)].outputs[int(output or 0)]
        return math.prod(output_tensor.shape.as_list()) * output_tensor.dtype.size if output_tensor.shape.rank else 0

    def _downstream(self, names: Iterable[str]) -> set[str]:
        """Return these nodes and all nodes that depend on them."""
        reached, pending = set(), list(names)
        while pending:
            name = pending.pop()
            if name not in reached:
                reached.add(name)
                pending += self.users[name]
        return reached


def recorded(graphs: Iterable[tf.compat.v1.GraphDef]) -> list[str]:
    """Return the names of the nodes that the probe added."""
    return [node.name for graph in graphs for node in graph.node if RECORDING in node.name]


def _way(node: tf.compat.v1.NodeDef) -> tuple[bytes, bytes]:
    """Return what identifies a _Send and its _Recv."""
    return node.attr["tensor_name"].s, node.attr["recv_device"].s


def _name(tensor: str) -> str:
    return tensor.partition(":")[0]


def _sorted(devices_by_module: dict[str, set[int]]) -> dict[str, list[int]]:
    return {name: sorted(numbers) for name, numbers in sorted(devices_by_module.items())}
