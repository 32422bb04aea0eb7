"""The axes of outputs, as the layers that made them say; never as the values of the other side say."""

from typing import Any

import numpy as np
import pytest

from parity.config.pair import Pair, PairInput
from parity.core.arrays import Array
from parity.pairs.activations.layouts import channels, given_orders, output_layouts
from parity.pairs.activations.modules import Surveyed
from parity.runtime.survey import Module, Seen, Survey
from parity.trace.keys import MODEL

RANDOM = np.random.default_rng(0)
CONV = RANDOM.normal(size=(2, 5, 5, 5))  # N, C, H, W: of one extent, so that no shape tells
OTHER = RANDOM.normal(size=(2, 5, 5, 5))
TO_KERAS = (0, 2, 3, 1)
LAST = {"data_format": "channels_last"}


def side(name: str, output: Array, *layers: tuple[str, dict[str, Any], Array]) -> Surveyed:
    """A survey of some layers (kind, facts, tensor), and the values."""
    modules = [Module(path=f"m{number}", kind=kind, facts=facts) for number, (kind, facts, _) in enumerate(layers)]
    values = {f"m{number}": tensor for number, (_, _, tensor) in enumerate(layers)} | {MODEL: output}
    seen = [Seen(key=key, module=key, shape=array.shape) for key, array in values.items()]
    return Surveyed(Survey(side=name, modules=modules, weights=[], called=[], outputs=seen), values)


def layouts(torch: Any, keras: Any) -> dict[str, str]:
    return output_layouts(torch, keras, [MODEL])


def as_keras(array: Array) -> Array:
    return array.transpose(TO_KERAS)


def conv_torch(output: Array, *tensors: Array) -> Any:
    return side("torch", output, *(("conv2d", {}, tensor) for tensor in tensors or (CONV,)))


def conv_keras(output: Array, *tensors: Array, **facts: str) -> Any:
    return side("keras", output, *(("conv2d", LAST | facts, as_keras(tensor)) for tensor in tensors or (CONV,)))


FOUND = {MODEL: "n c axis0 axis1 -> n axis0 axis1 c"}


def relu(array: Array) -> Array:
    return np.maximum(array, 0)


def test_a_residual_connection() -> None:
    output = relu(relu(OTHER) + CONV)
    assert layouts(conv_torch(output, OTHER, CONV), conv_keras(as_keras(output), OTHER, CONV)) == FOUND


def test_an_input_tells_where_no_layer_does_and_only_one_order_fits() -> None:
    torch, order = RANDOM.normal(size=(2, 5, 3, 3)), (0, 3, 1, 2)
    sides = side("torch", torch), side("keras", as_keras(torch))
    assert output_layouts(*sides, [MODEL], [order, order]) == {
        MODEL: "axis0 axis1 axis2 axis3 -> axis0 axis2 axis3 axis1"
    }
    assert not output_layouts(*sides, [MODEL], [order, (0, 3, 2, 1)])
    assert not output_layouts(side("torch", CONV), side("keras", as_keras(CONV)), [MODEL], [order])


def test_a_norm_says_its_axis() -> None:
    torch = side("torch", CONV, ("batch_norm", {}, CONV))
    for axis, found in ((-1, FOUND), (3, FOUND), (1, {})):
        assert layouts(torch, side("keras", as_keras(CONV), ("batch_norm", {"axis": axis}, as_keras(CONV)))) == found


@pytest.mark.parametrize(
    ("side", "module", "rank", "where"),
    [
        ("torch", Module(path="a", kind="conv2d"), 4, "first"),
        ("torch", Module(path="a", kind="AdaptiveAvgPool2d"), 4, "first"),
        ("torch", Module(path="a", kind="conv2d"), 3, ""),  # of one image alone
        ("torch", Module(path="a", kind="batch_norm"), 3, "first"),
        ("torch", Module(path="a", kind="layer_norm"), 4, "features"),
        ("keras", Module(path="a", kind="layer_norm", facts={"axis": [-1]}), 4, "features"),
        ("keras", Module(path="a", kind="layer_norm", facts={"axis": [1, 2]}), 3, ""),
        ("keras", Module(path="a", kind="linear"), 2, "features"),
        ("keras", Module(path="a", kind="conv2d", facts={"data_format": "channels_last"}), 4, "last"),
        ("keras", Module(path="a", kind="conv2d", facts={"data_format": "channels_first"}), 4, "first"),
        ("keras", Module(path="a", kind="batch_norm", facts={"axis": -1}), 4, "last"),
        ("keras", Module(path="a", kind="batch_norm", facts={"axis": 1}), 4, "first"),
        ("keras", Module(path="a", kind="batch_norm", facts={"axis": 2}), 4, ""),
        ("keras", Module(path="a", kind="MyConv2D"), 4, ""),  # a class of the user's does not say
        ("keras", None, 4, ""),
    ],
)
def test_layers_tell_where_their_channels_are(side: str, module: Module | None, rank: int, where: str) -> None:
    assert channels(side, module, rank) == where


def test_the_orders_of_axes_that_the_file_gives() -> None:
    layouts = ("n c h w -> n h w c", "", "n (h w) -> n h w")
    inputs = {f"x{number}": PairInput(shape=[1], keras_layout=layout) for number, layout in enumerate(layouts)}
    assert given_orders(Pair(torch="a:b", keras="a:b", inputs=inputs)) == [(0, 3, 1, 2)]
