"""The catalogue of planted faults: what the self-test plants, where it must be found, and as what."""

from parity.config import cases
from parity.config.schema import Case
from parity.selftest import keras, torch
from parity.selftest.fault import Fault

ALL: tuple[Fault, ...] = (*torch.FAULTS, *keras.FAULTS)
# Not built in: the specimen is a model for planted faults alone.
SPECIMEN = {"name": "specimen/single", "model": {"kind": "specimen"}, "data": {"batch": 4}, "steps": 2}


def resolve(fault: Fault) -> Case:
    """The case that a fault is planted on."""
    if fault.case == SPECIMEN["name"]:
        return cases.convert({**SPECIMEN, **fault.changes})
    return cases.resolve(fault.case, fault.changes)
