"""Computations on the wrong device, planted: each is found and named, on a case that matches without it.

Other mistakes of distribution are in the catalogue of the self-test.
"""

import pytest
from judged import passes_strict

from parity.config import cases
from parity.results import LayoutCheck
from parity.runtime.job import Job

# fault, side, case, what the layout's difference begins with
MISPLACED = [
    ("placement.layer", "torch", "two_linear/round_robin", "parameters: linear2.bias: torch on 0, keras on 1"),
    pytest.param(
        *("placement.layer", "keras", "simple_block/round_robin", "parameters: linear2.bias: torch on 0, keras on 1"),
        marks=pytest.mark.slow,
    ),
    pytest.param(
        *("placement.backward", "keras", "simple_block/round_robin", "backward: relu: torch on 1, keras on 0"),
        marks=pytest.mark.slow,
    ),
]


@pytest.mark.parametrize(("fault", "side", "name", "difference"), MISPLACED)
def test_a_misplaced_computation_is_found_and_named(run, fault, side, name, difference):
    clean = run(name)
    assert passes_strict(clean), clean
    faulty = run(name, **{side: fault})
    layout = faulty.checks["layout"]
    assert isinstance(layout, LayoutCheck)
    assert faulty.verdict == layout.verdict == "diverged"
    assert any(line.startswith(difference) for line in layout.differences), layout.differences


def test_an_activation_that_is_not_moved_is_the_frameworks_own_error(backends, tmp_path):
    case = cases.resolve("two_linear/round_robin")
    answer = backends[0].do(Job(case=case, runs=["low"], folder=str(tmp_path), fault="placement.move"))
    assert answer.status == "error"
    assert "Expected all tensors to be on the same device" in answer.message
