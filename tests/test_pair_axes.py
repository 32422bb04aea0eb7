"""Where several axes have one length, a fault is not taken for another order of axes.

The models are those of tests/pairs/axes_torch.py and its counterpart.
"""

import pytest
from judged import Judge, causes, judge_of
from slow import sampled

SIZES = (16, 32, 48, 64)
IMAGES, SEQUENCES = 'keras_layout = "n c h w -> n h w c"', 'keras_layout = "n c t -> n t c"'
PADDING = {"conv": "conv2d.padding", "max": "max_pool.padding", "transposed": "conv_transpose.padding"}


@pytest.fixture(scope="module")
def judge(backends, tmp_path_factory) -> Judge:
    return judge_of("axes", backends, tmp_path_factory)


@pytest.mark.parametrize("size", sampled(SIZES, "32"))
@pytest.mark.parametrize("down", sampled(["conv", "max", "transposed"], "conv"))
def test_a_padding_is_named_on_square_images_and_nothing_else(size, down, judge):
    result = judge("Images", [2, 3, size, size], IMAGES, both={"down": down}, same=True)
    assert result.verdict == "diverged" and result.first_divergence.name == "down"
    assert causes(result) == [(PADDING[down], "down")]


@pytest.mark.slow
@pytest.mark.parametrize("down", ["conv", "max", "average", "transposed"])
def test_the_right_padding_matches(down, judge):
    assert judge("Images", [2, 3, 16, 16], IMAGES, both={"down": down}).verdict == "match"


@pytest.mark.slow
def test_a_pooling_that_counts_its_padding_is_placed_at_the_pooling(judge):
    result = judge("Images", [2, 3, 16, 16], IMAGES, both={"down": "average"}, same=True)
    assert result.verdict == "diverged"
    assert {where for _, where in causes(result)} == {"down"}


@pytest.mark.slow
def test_as_many_steps_as_features(judge):
    assert judge("Steps", [2, 8, 8], SEQUENCES).verdict == "match"
    result = judge("Steps", [2, 8, 8], SEQUENCES, epsilon=1e-3)
    assert causes(result) == [("layer_norm.epsilon", "norm")]
    result = judge("Steps", [2, 8, 8], SEQUENCES, reversed_steps=True)
    assert result.verdict == "diverged" and "conv" in result.first_divergence.reason
    assert result.first_divergence.name == "(model)"


@pytest.mark.slow
def test_as_many_samples_as_heads_as_steps(judge):
    assert judge("Maps", [4, 4, 16]).verdict == "match"
    for fault in ({"axis": -2}, {"scale": 0.25}):
        result = judge("Maps", [4, 4, 16], **fault)
        assert result.verdict == "diverged" and result.first_divergence.name == "softmax"
        assert {where for _, where in causes(result)} == {"softmax"}
