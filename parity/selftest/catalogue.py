"""The catalogue of planted faults: what the self-test plants, where it must be found, and under which cause."""

from parity.config import cases
from parity.config.schema import Case
from parity.selftest.fault import SIDES, Fault
from parity.selftest.table import ROWS

ALL: tuple[Fault, ...] = tuple(fault for side in SIDES for row in ROWS for fault in row.faults if fault.side == side)
# The specimen is no built-in case: its model exists only for planted faults.
SPECIMEN = {"name": "specimen/single", "model": {"kind": "specimen"}, "data": {"batch": 4}, "steps": 2}


def resolve(fault: Fault) -> Case:
    """Return the case that a fault is planted on."""
    if fault.case == SPECIMEN["name"]:
        return cases.convert({**SPECIMEN, **fault.changes})
    return cases.resolve(fault.case, fault.changes)
