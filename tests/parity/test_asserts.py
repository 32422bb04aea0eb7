"""The assert functions: what they accept, and that their processes are kept and ended."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pairs_judged
import pytest
from slow import WAIT

import parity
from parity import asserts
from parity.config.schema import Pair
from parity.core.errors import UsageError


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test has a session of its own, which ends with it."""
    pairs_judged.use(monkeypatch)
    asserts._session.cache_clear()
    yield
    asserts._session().close()
    asserts._session.cache_clear()


def described() -> Pair:
    """The pair that was compared last."""
    model = pairs_judged.SEEN[-1].case.model
    assert isinstance(model, Pair)
    return model


def test_inputs_by_every_description(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.int32).reshape(2, 3)
    inputs = {"x": "float32[2,3]", "ids": "int64[2]<7", "file": values, "deep.er": {"shape": [4], "scale": 2.0}}
    parity.assert_match(torch="a:b", keras="c:d", inputs=inputs, name="good", outputs={"y": {"torch": 0}})
    found = described().inputs
    assert (found["x"].shape, found["x"].dtype) == ([2, 3], "float32")
    assert (found["ids"].dtype, found["ids"].range) == ("int64", (0, 7))
    assert (found["deep.er"].shape, found["deep.er"].scale) == ([4], 2.0)
    assert (found["file"].shape, found["file"].dtype) == ([2, 3], "int32")
    with np.load(found["file"].npz) as archive:
        np.testing.assert_array_equal(archive["file"], values)
    assert described().outputs["y"].torch == 0


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ("x=float32[2]", "received the text"),
        ([np.zeros(2)], "expected a list such as"),
        ({"x": 3}, "x is a int"),
        ({"x": np.array([None])}, "array of objects"),
        ({"x": np.zeros(2, np.complex64)}, "complex64"),
        ({"x": {"shapes": [2]}}, "did you mean 'shape'"),
        ({"x": "float33[2]"}, "did you mean 'float32'"),
        (["x=float32[2"], "expected name=dtype"),
        ([], "at least one input"),
    ],
)
def test_inputs_that_cannot_be_used(inputs: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said) as error:
        parity.assert_match(torch="a:b", keras="c:d", inputs=inputs, name="good")
    assert "\n" not in str(error.value)


def test_the_processes_are_kept_and_end_with_the_interpreter(tmp_path: Path) -> None:
    """In a process of its own, whose end is seen."""
    script = f"""
import sys, pytest
sys.path.insert(0, {str(Path(__file__).parent)!r})
import pairs_judged, parity
pairs_judged.use(pytest.MonkeyPatch())
for name in ("good", "good", "bad"):
    parity.assert_match(torch="a:b", keras="c:d", inputs=["x=float32[2]"], name=name)
"""
    log = tmp_path / "log"
    command = [sys.executable, "-c", script]
    variables = {"PARITY_TEST_LOG": str(log), "PYTHONPATH": str(Path(parity.__file__).parents[1])}
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=WAIT)
    assert "AssertionError: pair/bad: diverged" in ended.stderr
    assert [line.split()[:2] for line in log.read_text().splitlines()] == [
        ["began", "torch"], ["began", "keras"], ["ended", "torch"], ["ended", "keras"],
    ]  # fmt: skip


def test_importing_the_package_and_the_plugin_is_light() -> None:
    """Every pytest of the environment loads the plugin, and every program that imports a part of the package this."""
    code = "import sys, parity, parity.pytest_plugin; print(sorted({'numpy', 'msgspec', 'rich'} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT)
    assert ended.stdout.strip() == "[]", ended.stderr
    with pytest.raises(AttributeError, match="no attribute 'assert_mach'"):
        _ = parity.assert_mach
