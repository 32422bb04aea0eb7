"""What a user's code may leave behind in a process for all that runs after it, beside the frameworks' own settings."""

import os
import sys

import numpy as np

from parity.config.pair import Pair
from parity.runtime.job import Work

HALF = 0.5


def process() -> dict[str, str]:
    """Return the settings of the process itself, by name, as text."""
    told = {
        "os.getcwd": os.getcwd(),
        "os.environ": dict(os.environ),
        "numpy.geterr": np.geterr(),
        # Where the processor flushes denormal numbers to zero, half of the smallest normal number is 0.
        "denormals": sys.float_info.min * HALF > 0,
    }
    return {name: repr(value) for name, value in told.items()}


def owner(job: Work) -> str:
    """Return the name of the pair whose code a job runs; "" of any other job."""
    return job.case.name if job.case and isinstance(job.case.model, Pair) else ""


def changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Return the names of the settings that are not what they were. What is told only since is no change."""
    return sorted(name for name, value in before.items() if after.get(name) != value)
