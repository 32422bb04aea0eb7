"""A layer that the port calls at another place, or twice, is named."""

from pathlib import Path

import pytest
from slow import sampled

from parity.pairs import file
from parity.pairs.compare import compared
from parity.runtime.backend import Backend

FILE = Path(__file__).parent / "pairs" / "moved.toml"
NORM = "`layer_normalization`"


TOLD = {"Net": "", "Before": f"{NORM} behind `global_max_pooling1d`", "Twice": f"{NORM} called once"}


@pytest.mark.parametrize("model", sampled(TOLD, "Twice"))
def test_a_norm_before_the_pooling_or_twice(model: str, backends: list[Backend], tmp_path: Path) -> None:
    """The right port matches; of a wrong one it is told where PyTorch's model calls its norm."""
    told = TOLD[model]
    result = compared(file.load(FILE, [f'pair.keras="moved_keras:{model}"']), backends, tmp_path)
    assert result.verdict == ("diverged" if told else "match"), result
    expected = [("layers.order", "(model)", told, f"{NORM} where it is called")] if told else []
    assert [(each.id, each.where, each.torch, each.keras) for each in result.causes] == expected
