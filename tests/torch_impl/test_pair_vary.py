"""A user's model that is called many times keeps the weights that it was given."""

import numpy as np
import torch
from torch import nn

from parity.config.pair import Pair, PairInput
from parity.config.schema import Case
from parity.pairs.vary.coverage import Observer
from torch_impl.record.pair.vary import Instance

IDS = {"ids": np.array([[0, 1, 2]])}


def test_weights_that_a_call_has_written_to_are_loaded_again():
    model = nn.Embedding(4, 2)
    given = torch.arange(8.0).reshape(4, 2)
    loads = []

    def load() -> None:
        loads.append(model.max_norm)
        with torch.no_grad():
            model.weight.copy_(given)

    load()
    pair = Pair(torch="a:b", keras="c:d", inputs={"ids": PairInput(shape=[1, 3], dtype="int64")})
    case = Case(name="pair/a", model=pair)
    instance = Instance(case, model, "float32", torch.device("cpu"), load)
    ((_, right),) = instance.call(IDS, False, Observer())
    instance.reload_written()
    assert loads == [None]
    model.max_norm = 0.5
    instance.call(IDS, False, Observer())
    model.max_norm = None
    assert not torch.equal(model.weight, given)
    instance.reload_written()
    instance.reload_written()
    ((_, again),) = instance.call(IDS, False, Observer())
    assert loads == [None, None] and np.array_equal(again, right)
