"""Where several axes have one length, a fault is not taken for another order of axes.

The models are those of tests/pairs/axes_torch.py and its counterpart.
"""

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from parity.pairs import file
from parity.pairs.compare import compared
from parity.results import CaseResult

FOLDER = Path(__file__).parent / "pairs"
PAIR = """
[pair]
name = "axes"
torch = "axes_torch:{model}"
keras = "axes_keras:{model}"
[inputs.x]
shape = {shape}
{layout}
"""
SIZES = (16, 32, 48, 64)
IMAGES, SEQUENCES = 'keras_layout = "n c h w -> n h w c"', 'keras_layout = "n c t -> n t c"'
PADDING = {"conv": "conv2d.padding", "max": "max_pool.padding", "transposed": "conv_transpose.padding"}
Judge = Callable[..., CaseResult]


@pytest.fixture(scope="module")
def judge(backends, tmp_path_factory) -> Judge:
    """`judge(model, shape, layout, both={...}, keras arguments)`: the pair recorded and judged."""
    numbers = itertools.count()

    def judged(model: str, shape: list[int], layout: str = "", both: dict | None = None, **changes) -> CaseResult:
        folder = tmp_path_factory.mktemp(f"axes{next(numbers)}")
        path = folder / "axes.toml"
        path.write_text(PAIR.format(model=model, shape=shape, layout=layout))
        overrides = [f"pair.kwargs.{name}={json.dumps(value)}" for name, value in (both or {}).items()]
        overrides += [f"pair.keras_kwargs.{name}={json.dumps(value)}" for name, value in changes.items()]
        pair = file.load(path, overrides)._replace(search=[str(FOLDER)])
        return compared(pair, backends, folder, varied=False)

    return judged


def causes(result: CaseResult) -> list[tuple[str, str]]:
    return [(cause["id"], cause["where"]) for cause in result.causes]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("down", ["conv", "max", "transposed"])
def test_a_padding_is_named_on_square_images_and_nothing_else(size, down, judge):
    result = judge("Images", [2, 3, size, size], IMAGES, both={"down": down}, same=True)
    assert result.verdict == "diverged" and result.first_divergence.name == "down"
    assert causes(result) == [(PADDING[down], "down")]


@pytest.mark.parametrize("down", ["conv", "max", "average", "transposed"])
def test_the_right_padding_matches(down, judge):
    assert judge("Images", [2, 3, 16, 16], IMAGES, both={"down": down}).verdict == "match"


def test_a_pooling_that_counts_its_padding_is_placed_at_the_pooling(judge):
    result = judge("Images", [2, 3, 16, 16], IMAGES, both={"down": "average"}, same=True)
    assert result.verdict == "diverged"
    assert {where for _, where in causes(result)} == {"down"}


def test_as_many_steps_as_features(judge):
    assert judge("Steps", [2, 8, 8], SEQUENCES).verdict == "match"
    result = judge("Steps", [2, 8, 8], SEQUENCES, epsilon=1e-3)
    assert causes(result) == [("layer_norm.epsilon", "norm")]
    result = judge("Steps", [2, 8, 8], SEQUENCES, reversed_steps=True)
    assert result.verdict == "diverged" and "conv" in result.first_divergence.reason
    assert result.first_divergence.name == "(model)"


def test_as_many_samples_as_heads_as_steps(judge):
    assert judge("Maps", [4, 4, 16]).verdict == "match"
    for fault in ({"axis": -2}, {"scale": 0.25}):
        result = judge("Maps", [4, 4, 16], **fault)
        assert result.verdict == "diverged" and result.first_divergence.name == "softmax"
        assert {where for _, where in causes(result)} == {"softmax"}
