"""What goes into each layer is recorded, without its values where they are stored already."""

import keras
import pytest
from module_inputs import CASES, Inputs, check

from keras_impl.record import tree


@pytest.mark.slow
@pytest.mark.parametrize("known", [pytest.param(case, id=f"{case.model}/{case.strategy}") for case in CASES])
def test_the_inputs_of_every_layer_are_recorded(record, known: Inputs):
    check(record(known.model, strategy=known.strategy, devices=2, **known.changes), known)


def test_a_layer_without_a_kind_has_that_of_its_class():
    assert tree.kind(keras.layers.ELU()) == "ELU"
    assert tree.kind(keras.layers.Conv2DTranspose(1, 1)) == "conv_transpose2d"
