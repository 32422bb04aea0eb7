"""Windows that lie elsewhere: "same" against a padding at both ends, at every size, on one, two and three axes."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from slow import sampled

from parity.pairs import file
from parity.pairs.compare import compared
from parity.results import CaseResult

PAIR = Path(__file__).parent / "pairs" / "strided.toml"
AXES = {1: ("w", 12), 2: ("h w", 16), 3: ("d h w", 8)}
Compared = Callable[..., CaseResult]


@pytest.fixture(scope="module")
def judge(backends, tmp_path_factory) -> Compared:
    """`judge(kind, axes, padding, size)`: the verdict on a pair with this padding in Keras."""
    numbers = itertools.count()

    def judged(kind: str, axes: int, padding: str, size: int = 0) -> CaseResult:
        letters, usual = AXES[axes]
        shape = [2, 3, *[size or usual] * axes]
        overrides = [f'pair.kwargs.kind="{kind}"', f"pair.kwargs.axes={axes}", f"inputs.image.shape={shape}"]
        overrides += [f'inputs.image.keras_layout="b c {letters} -> b {letters} c"']
        overrides += [f'pair.keras_kwargs.padding="{padding}"'] if padding else []
        if kind in ("decoder", "both"):
            overrides += [f'outputs.image.keras_layout="b c {letters} -> b {letters} c"']
        folder = tmp_path_factory.mktemp(f"pair{next(numbers)}")
        return compared(file.load(PAIR, overrides), backends, folder, varied=False)

    return judged


def ids(result: CaseResult) -> list[str]:
    return sorted({cause.id for cause in result.causes})


@pytest.mark.parametrize("axes", sampled(AXES, "2"))
def test_the_same_padding_matches(judge: Compared, axes: int) -> None:
    assert judge("both", axes, "").verdict == "match"


@pytest.mark.slow
@pytest.mark.parametrize("size", [16, 32, 48, 64])
def test_same_in_strided_convolutions_is_named_at_every_size(judge: Compared, size: int) -> None:
    result = judge("encoder", 2, "same", size)
    assert (result.verdict, ids(result)) == ("diverged", ["conv2d.padding"])


@pytest.mark.slow
@pytest.mark.parametrize("axes", [1, 3])
def test_same_is_named_on_other_axes(judge: Compared, axes: int) -> None:
    assert ids(judge("encoder", axes, "same")) == ["conv.padding"]


@pytest.mark.slow
@pytest.mark.parametrize("axes", AXES)
def test_where_a_transposed_convolution_is_cropped_is_named(judge: Compared, axes: int) -> None:
    assert ids(judge("decoder", axes, "same")) == ["conv_transpose.padding"]


@pytest.mark.slow
@pytest.mark.parametrize("axes", [1, 2])
def test_zeros_that_count_in_a_maximum_are_named(judge: Compared, axes: int) -> None:
    assert ids(judge("pooled", axes, "")) == ["max_pool.padding"]


@pytest.mark.slow
def test_what_one_fault_hides_is_named_too(judge: Compared) -> None:
    assert ids(judge("both", 2, "same")) == ["conv2d.padding", "conv_transpose.padding"]
