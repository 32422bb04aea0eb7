"""What goes into each module is recorded: as it was then, and without its values where they are stored already."""

import functools
from unittest import mock

import pytest
from module_inputs import CASES, Inputs, check, forward
from slow import sampled
from small_cases import small
from torch import nn

from parity.runtime import drive
from parity.runtime.job import Job
from parity.trace.manifest import Trace
from torch_impl.record import run as side
from torch_impl.record import tree


@pytest.mark.parametrize(
    "known",
    sampled(
        (pytest.param(case, id=f"{case.model}/{case.strategy}") for case in CASES),
        "residual_block/single",
        "transformer/single",
    ),
)
def test_the_inputs_of_every_module_are_recorded(record, known: Inputs):
    check(record(known.model, known.strategy, 2, known.changes), known)


def test_a_module_that_works_in_place_is_recorded_with_what_it_got(tmp_path):
    with mock.patch.object(nn, "ReLU", functools.partial(nn.ReLU, inplace=True)):
        drive.record(Job(case=small("simple_block", "single", 1, {}), runs=["high"], folder=str(tmp_path)), side)
    trace = Trace(tmp_path)
    assert forward(trace, 0)["input/relu"] == "activation/linear1"
    assert forward(trace, 0)["input/linear2"] == "activation/relu"
    tensors = trace.open("high", "step-000000")
    assert tensors["input/relu"].min() < 0 == tensors["activation/relu"].min()


def test_a_module_without_a_kind_has_that_of_its_class():
    assert tree.kind(nn.Tanh()) == "Tanh"
    assert tree.kind(nn.ConvTranspose2d(1, 1, 1)) == "conv_transpose2d"
