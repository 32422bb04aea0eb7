"""The scripts of --reproduce: they run alone, and print the difference that the comparison found."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from slow import WAIT

from parity.pairs import file
from parity.pairs.compare import compared
from parity.repair.flags import reproduce

pytestmark = pytest.mark.slow
PAIRS = Path(__file__).parent / "pairs"
DIFFERENCE = re.compile(r"largest difference from what (torch|keras)'s module returned: (\S+)")


def differences(text: str) -> dict[str, float]:
    return {side: float(number) for side, number in DIFFERENCE.findall(text)}


@pytest.mark.parametrize(
    ("pair", "arguments"),
    [("convmap", {"epsilon": 1e-3}), ("lstm", {"gates": "hard_sigmoid"}), ("gpt", {"epsilon": 1e-3})],
)
def test_both_scripts_run_alone_and_show_the_difference(pair, arguments, backends, tmp_path):
    overrides = [f"pair.keras_kwargs.{name}={json.dumps(value)}" for name, value in arguments.items()]
    given, target = file.load(PAIRS / f"{pair}.toml", overrides), tmp_path / "out"
    target.mkdir()
    result = compared(given, backends, tmp_path / "traces", varied=False)
    assert result.verdict == "diverged", result.reason
    said = reproduce(given, result, tmp_path / "traces", target, {})
    assert {path.name for path in target.iterdir()} == {"arrays.npz", "torch_module.py", "keras_module.py"}
    for side, other in (("torch", "keras"), ("keras", "torch")):
        script = target / f"{side}_module.py"
        text = script.read_text()
        assert len(text.splitlines()) <= 40 and not re.search(r"parity|_impl", text.partition('"""\n')[2])
        ended = subprocess.run(
            [sys.executable, "-I", script.name], cwd=target, capture_output=True, text=True, timeout=WAIT
        )
        assert ended.returncode == 0, ended.stderr
        found = differences(ended.stdout)
        assert found[side] < 1e-9 and found[other] > 1e-4, ended.stdout
        assert all(f"{script}: {line}" in said for line in ended.stdout.splitlines())


def test_what_cannot_be_taken_out_is_said(backends, tmp_path):
    given = file.load(PAIRS / "llama.toml", ["pair.keras_kwargs.swapped=true"])
    result = compared(given, backends, tmp_path / "traces", varied=False)
    said = reproduce(given, result, tmp_path / "traces", tmp_path, {})
    assert said == ["layers.1.mlp cannot be taken out of the model: no single layer of Keras's corresponds to it"]
