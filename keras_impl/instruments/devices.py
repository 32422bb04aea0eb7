"""The logical devices of this process, set up when this module is imported, and what they physically are.

The environment variable PARITY_DEVICES gives their kind and number: cpu:N or gpu:N. If TF_CONFIG lists several
processes, each has one device, with the number of the process.
"""

import json
import os

import tensorflow as tf

from parity.config.devices import Devices, parse
from parity.runtime.drive import Rank
from parity.runtime.environment import threads

SHARE_OF_GPU = 2048  # MiB for each logical device on a GPU that is shared


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


DEVICES = parse(os.environ.get("PARITY_DEVICES", "cpu:2"))
_set_up(DEVICES)
