"""The catalogue of planted faults: each can be planted, and each mutation is used."""

import ast
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from parity.selftest.catalogue import ALL, ROWS, resolve
from parity.selftest.mutate import SHARED
from parity.trace import keys

ROOT = Path(__file__).parents[2]
KINDS = {"layout", keys.UPDATE, "sample", "input", "activation", "loss", "gradient", "parameter", "buffer"}
# Not in the catalogue: what ends a run, and what GPUs alone do.
ELSEWHERE = {"rank.raises", "rank.hangs", "rank.exits", "placement.move", "precision.tf32"}


def mutations(side: str) -> set[str]:
    """The names of a side's mutations, as its files say them: nothing here imports a framework."""
    found = set(SHARED)
    for path in (ROOT / f"{side}_impl" / "faults").glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.AnnAssign) and node.target.id in ("FAULTS", "FAULTS_IN_FLOAT32"):
                found |= {key.value for key in node.value.keys if isinstance(key, ast.Constant)}
    return found


@pytest.mark.parametrize("side", ["torch", "keras"])
def test_catalogue_and_mutations_agree(side):
    planted = {fault.name for fault in ALL if fault.side == side}
    assert planted == mutations(side) - ELSEWHERE


def test_a_fault_has_one_row_for_both_sides():
    assert max(Counter(row[0].name for row in ROWS).values()) == 1
    assert all(fault.mistake and fault.name == row[0].name for row in ROWS for fault in row)
    assert {len(row) for row in ROWS} == {1, 2}


def test_there_are_eighty_faults_on_few_cases():
    assert len(ALL) >= 80
    assert max(Counter((fault.side, fault.name, fault.at.case) for fault in ALL).values()) == 1
    assert len({msgspec.json.encode(resolve(fault)) for fault in ALL}) <= 40


@pytest.mark.parametrize("fault", ALL, ids=lambda fault: f"{fault.side}:{fault.name}")
def test_a_fault_says_where_it_is(fault):
    assert fault.kind in KINDS | {"optimizer_state"}
    assert fault.step is None or 0 <= fault.step <= resolve(fault).steps
    assert fault.place
