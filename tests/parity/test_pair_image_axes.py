"""Inputs whose axes nobody states although the two frameworks' layers take other ones."""

import numpy as np
import pytest
from msgspec.structs import replace
from pair_surveys import PAIR, conv, conv_k, dense, keras, linear, torch

from parity.config.pair import Pair, PairInput, Train
from parity.core.arrays import Array
from parity.pairs.accepting.suggest import order_of_axes
from parity.pairs.activations.layouts import unlike_axes
from parity.pairs.activations.modules import Surveyed
from parity.pairs.causes.pair_causes import LAYOUT, name_layout
from parity.pairs.weights.runs import agrees
from parity.results import CaseResult, Cause
from parity.runtime.survey import Seen, Survey

SHAPE = (2, 3, 5, 3)


def image(**fields: object) -> Pair:
    return replace(PAIR, inputs={"x": PairInput(shape=list(SHAPE), **fields)})


def given(survey: Survey, shape: tuple[int, ...] = SHAPE) -> Survey:
    return replace(survey, arguments={"c": [shape]})


TORCH, KERAS = torch(conv("c", 3, 4, 3, 3)), keras(conv_k("c", 3, 4, 3, 3))


def test_a_missing_layout_is_named() -> None:
    (told,) = unlike_axes(image(), given(TORCH), given(KERAS))
    assert "[inputs.x] has no keras_layout" in told and '"n c h w -> n h w c"' in told
    assert len(list(unlike_axes(image(), given(TORCH)))) == 1, "Keras's model may not have been callable"


@pytest.mark.parametrize(
    ("pair", "ours", "theirs"),
    [
        (image(keras_layout="n c h w -> n h w c"), given(TORCH), given(KERAS)),
        (image(), given(TORCH), given(KERAS, (2, 5, 3, 3))),  # the port transposes it
        (image(), given(torch(linear("c", 3, 4))), given(keras(dense("c", 3, 4)))),
        (PAIR, given(TORCH), given(KERAS)),
    ],
)
def test_what_is_stated_or_needs_no_layout_is_not_told(pair: Pair, ours: Survey, theirs: Survey) -> None:
    assert list(unlike_axes(pair, ours, theirs)) == []


def test_channels_first_layers_of_keras_need_no_layout() -> None:
    modules = [replace(module, facts={"data_format": "channels_first"}) for module in KERAS.modules]
    assert list(unlike_axes(image(), given(TORCH), given(replace(KERAS, modules=modules)))) == []


VALUES = np.random.default_rng(0).normal(size=(2, 3, 4))


@pytest.mark.parametrize(
    ("theirs", "expected"),
    [(VALUES, True), (VALUES.transpose(0, 2, 1), True), (VALUES.transpose(0, 2, 1) * 1.01, False), (VALUES + 1, False)],
)
def test_outputs_agree_in_some_order_of_axes(theirs: Array, expected: bool) -> None:
    survey = Survey(
        side="torch", modules=[], weights=[], called=[], outputs=[Seen(key="(model)", module="", shape=VALUES.shape)]
    )
    assert agrees(Surveyed(survey, {"(model)": VALUES}), {"(model)": np.ascontiguousarray(theirs)}) == expected


def test_an_output_in_another_order_of_axes_is_the_cause() -> None:
    layout = order_of_axes(VALUES, np.ascontiguousarray(VALUES.transpose(0, 2, 1)))
    assert layout == "axis0 axis1 axis2 -> axis0 axis2 axis1" and order_of_axes(VALUES, VALUES) == ""
    result = CaseResult(case="pair/x", verdict="diverged")
    result.causes = [Cause(id="unknown", where="target"), Cause(id="layer_norm.epsilon", where="norm")]
    name_layout(result, "(model)", layout)
    assert [(cause.id, cause.where) for cause in result.causes] == [
        ("layer_norm.epsilon", "norm"),
        (LAYOUT, "(model)"),
    ]


def test_a_training_needs_a_backward_pass() -> None:
    with pytest.raises(ValueError, match="leaves nothing to train with"):
        Pair(torch="a:b", keras="a:b", inputs={"x": PairInput(shape=[1])}, backward=False, train=Train())
