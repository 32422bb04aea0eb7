"""What a port's code does otherwise in its calls is named, also where outputs of the modules do not correspond."""

from pathlib import Path

import pytest
from slow import sampled

from parity.pairs import file
from parity.pairs.compare import compared
from parity.runtime.backend import Backend

FILE = Path(__file__).parent / "pairs" / "graph.toml"
EARLY, EXCHANGED = 'pair.keras="graph_keras:with_early_bias"', 'pair.keras="graph_keras:with_exchanged_gate"'
TOLD = {
    EARLY: ("layers.order", "first", "`matmul` before `add`", "`matmul` behind `add`"),
    # At the first call, of a state of zeros, the gate alone would be as good.
    EXCHANGED: ("module.wiring", "cell", "what `sigmoid` at ", "what `Sub` at "),
    'train.keras_step="graph_keras:step_over_all"': ("loss.normalisation", "loss", "over 5", "over 8"),
}


@pytest.mark.parametrize("change", sampled(["", *TOLD], ""))
def test_a_bias_before_the_product_an_exchanged_gate_and_an_average_over_all(
    change: str, backends: list[Backend], tmp_path: Path
) -> None:
    result = compared(file.load(FILE, [change] if change else []), backends, tmp_path, varied=False)
    assert result.verdict == ("diverged" if change else "match"), result
    if change:
        (id_, where, *values), cause = TOLD[change], result.causes[0]
        assert (cause.id, cause.where) == (id_, where)
        assert all(map(str.startswith, (cause.torch, cause.keras), values)), cause
