"""Which tensors of two halves correspond where many have the same values, or values that say little."""

import numpy as np
import pytest
from pair_halves import Half, mapped, matching, normal, of, pairs

from parity.core.arrays import Array
from parity.core.errors import UsageError
from parity.pairs.activations.matching import match
from parity.trace.mapping import Mapping


def alike(half: Half, rows: list[tuple[str, str]], owner: str = "") -> Half:
    """Modules that all return the same."""
    y = normal(0, 4, 6)
    for path, kind in rows:
        half.returns(path, kind, y, given=(y,))
    if owner:
        half.owns(owner, weight=(6, 6))
    half.ends(y)
    return half


def test_kinds_weights_and_dropouts_count_more_than_many_pairs() -> None:
    torch, keras = [("same", "Identity"), ("act", "relu")], [("re_lu", "relu"), ("reshape", "Reshape")]
    found = matching(alike(Half("torch"), torch), alike(Half("keras"), keras), Mapping(entries=[]))
    assert pairs(found) == {"act": "re_lu", "(model)": "(model)"}
    torch, keras = [("l", "linear"), ("box", "Box")], [("entry", "Entry"), ("dense", "Projection")]
    owners = mapped(l__weight="dense__weight")
    found = matching(alike(Half("torch"), torch, "l"), alike(Half("keras"), keras, "dense"), owners)
    assert pairs(found) == {"l": "dense", "(model)": "(model)"}
    torch = [("drop", "dropout"), *((f"m{number}", "M") for number in range(4))]
    keras = [*((f"f{number}", "F") for number in range(4)), ("dropout", "dropout")]
    found = matching(alike(Half("torch"), torch), alike(Half("keras"), keras), Mapping(entries=[]))
    assert pairs(found) == {"drop": "dropout", "(model)": "(model)"}


# ---- tensors that say little


def single(half: Half, value: Array) -> Half:
    half.owns("first", weight=(6, 6))
    half.returns("first", "linear", value, given=(value,))
    half.returns("act", "relu", value, given=(value,))
    half.returns("block" if half.side == "torch" else "layer", "B" if half.side == "torch" else "L", value)
    half.ends(normal(0, 3))
    return half


@pytest.mark.parametrize(
    "value",
    [
        np.zeros((4, 6)),
        np.ones((4, 6)),
        np.full((4, 6), np.nan),
        np.full((4, 6), np.inf),
        np.zeros((0, 6)),
        np.array(3.0),
        np.array(0.0),
        np.zeros((4, 6), np.int64),
        np.array([[True, False], [False, True]]),
        np.where(normal(0, 4, 6) > 0, np.nan, normal(1, 4, 6)),
        np.arange(24).reshape(4, 6),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("error")
def test_degenerate_tensors(value: Array) -> None:
    found = matching(single(Half("torch"), value), single(Half("keras"), value), mapped(first__weight="first__weight"))
    assert pairs(found)["first"] == "first" and pairs(found)["act"] == "act"
    assert of(found, "first").axes == list(range(value.ndim))


# ---- the whole model's outputs


def test_the_models_outputs_go_by_name_whatever_they_hold() -> None:
    torch, keras = Half("torch"), Half("keras")
    torch.ends(normal(0, 2, 3), normal(1, 4))
    keras.ends(normal(2, 2, 3), normal(3, 4))
    assert pairs(matching(torch, keras, Mapping(entries=[]))) == {"(model)": "(model)", "(model)#1": "(model)#1"}
    turned = Half("keras")
    turned.ends(normal(2, 3, 2), normal(3, 4))
    assert pairs(matching(torch, turned, Mapping(entries=[]))) == {"(model)#1": "(model)#1"}
    keras = Half("keras")
    keras.ends(normal(2, 2, 3))
    with pytest.raises(UsageError, match=r"Keras's model does not return \(model\)#1: .*\[outputs\]"):
        matching(torch, keras, Mapping(entries=[]))
    with pytest.raises(UsageError, match=r"torch's model does not return \(model\)#1"):
        match(keras.returned(), torch.returned(), Mapping(entries=[]))


# ---- tied weights


# ---- size
