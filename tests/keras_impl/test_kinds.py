"""What a layer's attributes say, whatever their types."""

import keras
import numpy as np

from keras_impl.record import tree


def test_facts_of_numpys_types_are_plain() -> None:
    layer = keras.layers.BatchNormalization(epsilon=np.float64(0.5))
    layer.num_heads, layer.strides, layer.equation = np.int64(4), np.array([2, 3]), np.str_("ab->c")
    facts = tree.facts(layer)
    assert {name: facts[name] for name in ("epsilon", "heads", "strides", "equation")} == {
        "epsilon": 0.5, "heads": 4, "strides": [2, 3], "equation": "ab->c",
    }  # fmt: skip
    assert [type(facts[name]) for name in ("epsilon", "heads", "equation")] == [float, int, str]
