"""Replaces what every training script calls of torch.cuda and torch.accelerator: devices, seeds, waiting, memory.

Work on a virtual device is complete when its call returns, so there is nothing to wait for, and no memory of a GPU is
in use. Random numbers come from the CPU's generator, which the seeding functions of torch.cuda leave alone. What is not
replaced here, unpretended.py passes over or refuses.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch

from torch_impl.instruments.pretended import unpretended
from torch_impl.instruments.pretended.devices import located
from torch_impl.instruments.virtual_devices import Machine

NAME = "CPU (virtual)"
MEMORY = 80 * 2**30
NOTHING = """
    _lazy_init empty_cache init ipc_collect manual_seed manual_seed_all reset_accumulated_memory_stats
    reset_max_memory_allocated reset_max_memory_cached reset_peak_memory_stats seed seed_all
    set_per_process_memory_fraction set_rng_state set_rng_state_all set_sync_debug_mode synchronize
"""
VALUES = {
    **dict.fromkeys(("can_device_access_peer", "is_available", "is_bf16_supported", "is_initialized"), True),
    **dict.fromkeys(("memory_allocated", "memory_cached", "memory_reserved"), 0),
    **dict.fromkeys(("max_memory_allocated", "max_memory_cached", "max_memory_reserved"), 0),
    "get_arch_list": [],
    "get_device_capability": (9, 0),
    "get_device_name": NAME,
    "get_sync_debug_mode": 0,
    "is_current_stream_capturing": False,
    "mem_get_info": (MEMORY, MEMORY),
}
# What has another name in torch.accelerator than in torch.cuda.
RENAMED = {
    **dict.fromkeys(("current_device_idx", "current_device_index"), "current_device"),
    **dict.fromkeys(("set_device_idx", "set_device_index"), "set_device"),
    "device_index": "device",
    "get_memory_info": "mem_get_info",
}


def patches(machine: Machine) -> Iterator[tuple[Any, str, Any]]:
    """Yield what is replaced: owner, name, value."""
    values = {name: _always(value) for name, value in (dict.fromkeys(NOTHING.split()) | VALUES).items()}
    values |= _devices(machine) | {
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "get_rng_state_all": lambda: [torch.get_rng_state()] * (machine.count or 1),
        "initial_seed": torch.initial_seed,
    }
    for module in (torch.cuda, torch.cuda.memory, torch.cuda.random):
        for name in values.keys() & vars(module).keys():
            yield module, name, values[name]
    own = {name: values[of_cuda] for name, of_cuda in RENAMED.items()}
    own["current_accelerator"] = lambda check_available=False: torch.device(machine.called)
    for name, value in {**values, **own}.items():
        if hasattr(torch.accelerator, name):
            yield torch.accelerator, name, value
    yield from unpretended.patches(machine, set(values))
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        yield torch.cuda.nvtx, name, _always(0)
    yield torch.cuda.nvtx, "range", lambda *args, **kwargs: nullcontext()
    yield torch.backends.cudnn, "is_acceptable", _always(False)


def _always(value: Any) -> Any:
    return lambda *args, **kwargs: value


def _devices(machine: Machine) -> dict[str, Any]:
    """Return the functions that tell the number of devices and the current one, and that select it."""

    def index(device: Any) -> int | None:
        return None if device is None else located(machine, device).index

    def select(device: Any) -> None:
        machine.current = index(device)

    class Device:
        """Selects the current device within a `with` block."""

        def __init__(self, device: Any):
            self.index = index(device.get_device() if isinstance(device, torch.Tensor) else device)

        def __enter__(self) -> None:
            self._before = machine.current
            if self.index is not None and self.index >= 0:
                machine.current = self.index

        def __exit__(self, *error: Any) -> None:
            machine.current = self._before

    properties = {"name": NAME, "major": 9, "minor": 0, "total_memory": MEMORY, "multi_processor_count": 132}
    return {
        "current_device": lambda: machine.current,
        "device": Device,
        "device_count": lambda: machine.count,
        "device_of": Device,
        "get_device_properties": lambda device=None: SimpleNamespace(**properties),
        "set_device": select,
    }
