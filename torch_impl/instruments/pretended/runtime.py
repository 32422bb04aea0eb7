"""Replaces what every training script calls of torch.cuda and torch.accelerator: devices, seeds, waiting, memory.

Work on a virtual device is complete when its call returns, so there is nothing to wait for, and no memory of a GPU is
in use. Random numbers come from the CPU's generator, which the seeding functions of torch.cuda leave alone. Streams
and events, readings of the hardware, and profilers change no number that a program computes: calls of them do nothing,
and are noted. Anything else is PyTorch's own. Where that fails for want of a GPU, it raises NotPretendedError.
"""

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from types import FrameType, SimpleNamespace
from typing import Any
from unittest import mock

import torch

from parity.doctor.evidence import NotPretended
from torch_impl.instruments import source
from torch_impl.instruments.pretended.devices import StandIn, located
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
    yield from _unpretended(machine, set(values))
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

    def selected(device: Any) -> AbstractContextManager[Any]:
        """Return a context that selects a device within its block, even if the block itself selects others."""
        at = index(device.get_device() if isinstance(device, torch.Tensor) else device)
        return mock.patch.object(machine, "current", machine.current if at is None or at < 0 else at)

    properties = {"name": NAME, "major": 9, "minor": 0, "total_memory": MEMORY, "multi_processor_count": 132}
    return {
        "current_device": lambda: machine.current,
        "device": selected,
        "device_count": lambda: machine.count,
        "device_of": selected,
        "get_device_properties": lambda device=None: SimpleNamespace(**properties),
        "set_device": select,
    }


ORDER = (
    "all work is done at once, in the order in which the program starts it, so that a missing wait between streams is "
    "not found, and times between events are nan"
)
READING = "there is nothing to read, so that its value is nan"
PROFILE = "nothing is recorded"
RAISES = "it raises an error, so that the program goes on otherwise than on a GPU"
# What does nothing and is noted, by what that means. The names are those of torch.cuda and its modules.
PASSED_OVER = {
    ORDER: """
        Event ExternalStream Stream StreamContext current_stream default_stream get_stream_from_external set_stream
        stream
    """,
    READING: """
        clock_rate device_memory_used host_memory_stats host_memory_stats_as_nested_dict list_gpu_processes
        memory_snapshot memory_stats memory_stats_as_nested_dict memory_summary memory_usage power_draw temperature
        utilization version
    """,
    PROFILE: "_dump_snapshot _record_memory_history cudart profile start stop",
}
INSTEAD = {name: instead for instead, names in PASSED_OVER.items() for name in names.split()}
MODULES = ("", ".comm", ".gds", ".graphs", ".memory", ".nccl", ".profiler", ".streams", ".tunable")


class NotPretendedError(RuntimeError):
    """Raised by a call that virtual GPUs do not imitate and that PyTorch cannot make without a GPU."""


class Nothing(float):
    """What a call that was passed over returns: nan, whose methods do nothing and whose items are nan as well."""

    def __new__(cls, *args: Any, **kwargs: Any) -> "Nothing":
        return super().__new__(cls, "nan")

    def is_capturing(self) -> bool:
        """Return that a stream does not capture a graph, which PyTorch's optimizers ask."""
        return False

    def __getattr__(self, name: str) -> "Nothing":
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()

    def synchronize(self) -> None:
        """Wait for nothing; a method of its own, so that the doctor can see the call."""

    def __call__(self, *args: Any, **kwargs: Any) -> "Nothing":
        return Nothing()

    __getitem__ = __call__

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __enter__(self) -> "Nothing":
        return self

    def __exit__(self, *error: Any) -> None:
        pass


def _unpretended(machine: Machine, pretended: set[str]) -> Iterator[tuple[Any, str, Any]]:
    """Yield what notes a call, or refuses it: owner, name, value; `pretended`: what is imitated."""
    for path in MODULES:
        module = importlib.import_module(f"torch.cuda{path}")
        for name in {*getattr(module, "__all__", ()), *(INSTEAD.keys() & vars(module).keys())} - pretended:
            value = getattr(module, name)
            is_error = isinstance(value, type) and issubclass(value, BaseException)
            if callable(value) and not is_error:
                yield module, name, _replaced(machine, f"{module.__name__}.{name}", value)
    for name in ("Stream", "Event"):
        yield torch, name, _passed_over(machine, f"torch.{name}", ORDER)
    for name in INSTEAD.keys() & vars(torch.accelerator).keys():
        yield torch.accelerator, name, _passed_over(machine, f"torch.accelerator.{name}", INSTEAD[name])


def _replaced(machine: Machine, call: str, value: Any) -> Any:
    name = call.rpartition(".")[2]
    if name in INSTEAD:
        return _passed_over(machine, call, INSTEAD[name])
    if isinstance(value, type):
        return StandIn(name, (), {"make": staticmethod(_tried(machine, call, value)), "original": value})
    return _tried(machine, call, value)


def _passed_over(machine: Machine, call: str, instead: str) -> type[Nothing]:
    """Return what notes a call and does nothing: a class, because programs also ask for instances of some."""

    def new(cls: type[Nothing], *args: Any, **kwargs: Any) -> Nothing:
        _note(machine, call, instead, sys._getframe(1))
        return Nothing.__new__(cls)

    return type(call.rpartition(".")[2], (Nothing,), {"__new__": new})


def _tried(machine: Machine, call: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of PyTorch's so that an error that the program meets says that it is not pretended."""

    @functools.wraps(function, updated=())
    def tried(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if not _note(machine, call, RAISES, sys._getframe(1)):
                raise
            first = str(error).partition("\n")[0]
            message = f"Virtual GPUs do not imitate {call}, which fails without a GPU ({first})."
            raise NotPretendedError(message) from error

    return tried


def _note(machine: Machine, call: str, instead: str, caller: FrameType) -> bool:
    """Note a call of the program, once for each line; return whether it is the program's and not PyTorch's own."""
    if caller.f_globals.get("__name__", "").partition(".")[0] == "torch":
        return False
    noted = NotPretended(call=call, source=source.line(), instead=instead)
    if noted not in machine.not_pretended:
        machine.not_pretended.append(noted)
    return True
