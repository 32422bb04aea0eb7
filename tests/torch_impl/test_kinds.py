"""What a module's attributes say, whatever their types."""

import numpy as np
from torch import nn

from torch_impl.record import tree


def test_facts_of_numpys_types_are_plain() -> None:
    module = nn.BatchNorm2d(4, eps=np.float64(0.5))
    module.num_heads, module.stride = np.int64(4), np.array([2, 3])
    facts = tree.facts(module)
    assert {name: facts[name] for name in ("epsilon", "heads", "stride")} == {
        "epsilon": 0.5, "heads": 4, "stride": [2, 3],
    }  # fmt: skip
    assert [type(facts[name]) for name in ("epsilon", "heads")] == [float, int]
