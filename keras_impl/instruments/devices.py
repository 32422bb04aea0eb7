"""The logical devices of this process, set up when this module is imported, and what they physically are.

The environment variable PARITY_DEVICES gives their kind and number: cpu:N or gpu:N. If TF_CONFIG lists several
processes, each has one device, with the number of the process.

GPUs are pretended where there are none: GPU:i of the program is then the logical device CPU:i+1, and CPU:0 the host.
Names are translated where TensorFlow reads them, below tf.device and keras.device, so that strategies and layers that
place their variables themselves are covered too. As with real GPUs, soft placement (on by default) moves ops from a
GPU that does not exist to GPU:0. What is replaced for this is restored when the context ends.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import tensorflow as tf
from tensorflow.core.framework.device_attributes_pb2 import DeviceAttributes
from tensorflow.python.client import device_lib
from tensorflow.python.distribute import device_util, mirrored_strategy, values
from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.ops import resource_variable_ops

from parity.config.devices import Devices, parse
from parity.core.patches import Original, applied, around
from parity.runtime.drive import Rank
from parity.runtime.environment import threads

SHARE_OF_GPU = 2048  # MiB for each logical device on a GPU that is shared
FIRST = "/job:localhost/replica:0/task:0/device:CPU:1"  # where ops without a device run
DETAILS = {"device_name": "CPU (virtual)", "compute_capability": (8, 0)}
DESCRIBED = "device: {}, name: CPU (virtual), pci bus id: 0000:00:00.0, compute capability: 8.0"
FRAMEWORKS = ("tensorflow", "keras")

_gpus = 0  # the number of pretended GPUs


def rank() -> Rank:
    """Return this process's number among those in TF_CONFIG, and how many there are; 0 of 1 without it."""
    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    workers = config.get("cluster", {}).get("worker", ["this process"])
    return Rank(config.get("task", {}).get("index", 0), len(workers))


def replica(alone: int = 0) -> int:
    """Return the number of the replica whose code is running or being traced; `alone` without tf.distribute."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return alone
    return int(tf.get_static_value(context.replica_id_in_sync_group))


def names(count: int) -> list[str]:
    """Return TensorFlow's names of the first `count` logical devices."""
    return [f"{DEVICES.kind.upper()}:{number}" for number in range(count)]


def number(device: str) -> int | None:
    """Return the logical device's number from TensorFlow's full device name; None for the host of GPUs."""
    spec = tf.DeviceSpec.from_string(device)
    if (spec.device_type or "").lower() != DEVICES.kind:
        return None
    return spec.task if spec.job == "worker" else spec.device_index


def host(device: str) -> str:
    """Return the device that can hand a tensor on `device` to Python without a copy to another logical device."""
    return device if DEVICES.kind == "cpu" else "CPU:0"


def physical(count: int) -> list[str]:
    """Return a description of each of the first `count` logical devices."""
    if DEVICES.kind == "cpu":
        kinds = "CPU" if count == 1 else "CPU (logical)" if rank().of == 1 else "CPU (process)"
        return [kinds] * count
    gpus = tf.config.list_physical_devices("GPU")
    described = [tf.config.experimental.get_device_details(gpu).get("device_name", "GPU") for gpu in gpus]
    return [
        name + (" (shared)" if share > 1 else "")
        for name, share in zip(described, _spread(len(gpus), DEVICES.number), strict=True)
        for _ in range(share)
    ][:count]


def _set_up(devices: Devices) -> None:
    """Configure TensorFlow's devices and threads; must be called before TensorFlow runs any op."""
    # Turn Grappler off, so that graphs run as written: it merges and renames nodes, whose names are the evidence of the
    # layout (partitions.py), and it takes a fifth of the time before the first step.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    tf.config.threading.set_intra_op_parallelism_threads(threads())
    tf.config.threading.set_inter_op_parallelism_threads(threads())
    physical = tf.config.list_physical_devices(devices.kind.upper())
    if not physical:
        raise RuntimeError(
            f"PARITY_DEVICES is {devices}, but TensorFlow sees no {devices.kind.upper()}; set it to cpu:N"
        )
    if devices.kind == "cpu":
        logical = [tf.config.LogicalDeviceConfiguration()] * devices.number
        tf.config.set_logical_device_configuration(physical[0], logical)
        return
    # TensorFlow numbers the logical devices GPU by GPU.
    for gpu, share in zip(physical, _spread(len(physical), devices.number), strict=True):
        if share > 1:
            limits = [tf.config.LogicalDeviceConfiguration(memory_limit=SHARE_OF_GPU)] * share
            tf.config.set_logical_device_configuration(gpu, limits)
        else:
            tf.config.experimental.set_memory_growth(gpu, True)


def _spread(gpus: int, count: int) -> list[int]:
    """Return how many logical devices each GPU has."""
    return [len(range(i, count, gpus)) for i in range(gpus)]


@contextmanager
def pretend(count: int) -> Iterator[None]:
    """Provide `count` devices "GPU:i" within the block; the process needs count + 1 logical CPUs."""
    thread = context.context()
    previous = thread.device_name, thread.device_spec
    with applied(patches(count)):
        # Not tf.device: it would start TensorFlow's runtime, which the program may still want to configure.
        thread._set_device(FIRST, tf.DeviceSpec.from_string(FIRST))
        try:
            yield
        finally:
            thread._set_device(*previous)


def patches(count: int) -> Iterator[Any]:
    """Yield the patches under which there are `count` GPUs."""
    # An eager scope of None removes all placements, and ops without a device run on the first GPU.
    eager = context.Context
    yield around(eager, "device", lambda scope, self, name: scope(self, FIRST if name is None else _real(name)))
    yield around(ops.Graph, "device", lambda scope, self, name: scope(self, _real(name)))
    yield around(
        device_util, "canonicalize", lambda canonical, d, default=None: canonical(_real(d), default and _real(default))
    )
    yield around(mirrored_strategy.MirroredExtended, "__init__", _without_nccl)
    yield from _config(count)
    # Of `.device` for reads by the program; TensorFlow and Keras themselves read the real device.
    kinds = (ops.EagerTensor, resource_variable_ops.BaseResourceVariable, values.DistributedVariable)
    for kind, attribute in [*((kind, "device") for kind in kinds), (ops.EagerTensor, "backing_device")]:
        yield mock.patch.object(kind, attribute, property(partial(_as_told, vars(kind)[attribute])))
    yield mock.patch.object(sys.modules[__name__], "_gpus", count)


def name(device: str) -> str:
    """Return the program's name of a device: "GPU:1", "CPU:0", or "" if TensorFlow has not placed it."""
    spec = tf.DeviceSpec.from_string(device)
    if spec.device_type is None:
        return ""
    index = spec.device_index or 0
    return f"GPU:{index - 1}" if _gpus and spec.device_type == "CPU" and index else f"{spec.device_type}:{index}"


def _real(device: Any) -> Any:
    """Translate a device name of the program to that of the logical device; anything else remains unchanged."""
    device = getattr(device, "name", device)
    device = device.to_string() if isinstance(device, tf.DeviceSpec) else device
    spec = tf.DeviceSpec.from_string(device) if isinstance(device, str) else None
    if spec is None or spec.device_type not in ("CPU", "GPU"):
        return device
    index = spec.device_index or 0
    if spec.device_type == "GPU":
        if index >= _gpus and context.context()._soft_device_placement is False:
            return device  # TensorFlow will report that there is no such device
        index = 1 + (index if index < _gpus else 0)
    return spec.replace(device_type="CPU", device_index=index).to_string()


def _without_nccl(
    initialize: Original, self: Any, container: Any, devices: Any = None, cross_device_ops: Any = None
) -> None:
    """Make a MirroredStrategy that uses ReductionToOneDevice."""
    # Its defaults do not work here: NCCL needs GPUs, and collective ops serve only one model per process.
    if cross_device_ops is None or isinstance(cross_device_ops, tf.distribute.NcclAllReduce):
        cross_device_ops = tf.distribute.ReductionToOneDevice()
    initialize(self, container, devices, cross_device_ops)


def _config(count: int) -> Iterator[Any]:
    physical = [context.PhysicalDevice(f"/physical_device:GPU:{i}", "GPU") for i in range(count)]
    logical = [context.LogicalDevice(f"/device:GPU:{i}", "GPU") for i in range(count)]
    lists = {"list_physical_devices": physical, "get_visible_devices": physical, "list_logical_devices": logical}
    for method, gpus in lists.items():
        yield around(context.Context, method, partial(_listed, gpus))
    on_a_gpu = {
        **dict.fromkeys(("set_memory_growth", "reset_memory_stats", "set_visible_devices")),
        **dict.fromkeys(("set_logical_device_configuration", "get_logical_device_configuration")),
        "get_memory_growth": True,
        "get_device_details": DETAILS,
        "get_memory_info": {"current": 0, "peak": 0},
    }
    for method, answer in on_a_gpu.items():
        yield around(context.Context, method, partial(_answered, answer))
    yield mock.patch.object(context.Context, "num_gpus", lambda self: count)
    # What tf.test.gpu_device_name and tf.test.is_gpu_available look through.
    local = [DeviceAttributes(name="/device:CPU:0", device_type="CPU")]
    for i in range(count):
        described = DESCRIBED.format(i)
        local.append(DeviceAttributes(name=f"/device:GPU:{i}", device_type="GPU", physical_device_desc=described))
    yield mock.patch.object(device_lib, "list_local_devices", lambda session_config=None: local)


def _listed(gpus: list, method: Original, self: context.Context, device_type: str | None = None) -> list:
    """Call a method that lists devices, and add the GPUs."""
    # Keras itself sees none, because it chooses GPU kernels (cuDNN, XLA) if there are any.
    hosts = [] if device_type == "GPU" else method(self, device_type or "CPU")[:1]
    return hosts + (gpus if device_type in (None, "GPU") and not _picks_kernels() else [])


def _picks_kernels() -> bool:
    """Return whether Keras's own code asks, in order to choose cuDNN or XLA."""
    frame = sys._getframe(3)  # of what calls the method in whose place _listed is called
    while frame.f_back is not None and "/tensorflow/" in frame.f_code.co_filename:
        frame = frame.f_back
    return "/keras/src/" in frame.f_code.co_filename and "distribution" not in frame.f_code.co_filename


def _answered(
    answer: Any, method: Original, self: context.Context, device: Any, *arguments: Any, **keywords: Any
) -> Any:
    asked = str((device, *arguments))  # a device, its name, a list of them and perhaps a type
    return answer if "GPU" in asked.upper() else method(self, device, *arguments, **keywords)


def _as_told(real: Any, self: Any) -> str:
    """Return a `.device` by its translated name, except to callers within TensorFlow and Keras."""
    device = real.__get__(self)
    caller = sys._getframe(1).f_globals.get("__name__", "")
    if caller.partition(".")[0] in (*FRAMEWORKS, "keras_impl"):
        return device
    spec = tf.DeviceSpec.from_string(device)
    kind, _, index = name(device).partition(":")
    return spec.replace(device_type=kind, device_index=int(index)).to_string() if kind else device


DEVICES = parse(os.environ.get("PARITY_DEVICES", "cpu:2"))
_set_up(DEVICES)
