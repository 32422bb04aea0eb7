"""The catalogue of planted faults: what the self-test plants, where it must be found, and under which cause."""

from parity.config import cases
from parity.config.schema import Case
from parity.selftest import keras, torch
from parity.selftest.fault import Fault

ALL: tuple[Fault, ...] = (*torch.FAULTS, *keras.FAULTS)
# The specimen is no built-in case: its model exists only for planted faults.
SPECIMEN = {"name": "specimen/single", "model": {"kind": "specimen"}, "data": {"batch": 4}, "steps": 2}


def resolve(fault: Fault) -> Case:
    """Return the case that a fault is planted on."""
    if fault.case == SPECIMEN["name"]:
        return cases.convert({**SPECIMEN, **fault.changes})
    return cases.resolve(fault.case, fault.changes)
