"""Times how long a step communicates: the spans that PyTorch's profiler notes of collectives, messages and copies."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import profile, supported_activities

from parity.core.spans import covered
from parity.doctor.clock import Clock

# As ProcessGroupGloo.cpp and NCCL's kernels name them, and CUPTI the copies between GPUs.
KINDS = ("gloo:", "nccl", "Memcpy PtoP")
MICRO = 1e-6


@contextmanager
def timed(clock: Clock) -> Iterator[None]:
    """Add the time of one step, which runs within the block, in which something is sent or waited for.

    Other parts may run at the same time: DistributedDataParallel reduces gradients during the backward pass.
    """
    with profile(activities=supported_activities()) as profiler:
        yield
    events: list[FunctionEvent] = list(profiler.events() or [])
    spans = [(event.time_range.start, event.time_range.end) for event in events if event.name.startswith(KINDS)]
    if torch.distributed.is_initialized() or spans:
        clock.add("communication", covered(spans) * MICRO)
