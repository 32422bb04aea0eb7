"""A layer that the port calls at another place is named."""

from pathlib import Path

from parity.pairs import file
from parity.pairs.compare import compared
from parity.runtime.backend import Backend

FILE = Path(__file__).parent / "pairs" / "moved.toml"
NORM = "`layer_normalization`"


def test_a_norm_before_the_pooling(backends: list[Backend], tmp_path: Path) -> None:
    """The right port matches; of the wrong one the place is told at which PyTorch's model calls its norm."""
    results = []
    for number, model in enumerate(("Net", "Before")):
        of_model = file.load(FILE, [f'pair.keras="moved_keras:{model}"'])
        results.append(compared(of_model, backends, tmp_path / str(number)))
    assert [result.verdict for result in results] == ["match", "diverged"], results
    (cause,) = results[1].causes
    assert (cause.id, cause.where, cause.keras) == ("layers.order", "(model)", f"{NORM} where it is called")
    assert cause.torch == f"{NORM} behind `global_max_pooling1d`"
