"""Settings of any type become plain where they are read."""

import enum
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from parity.core.plain import plain, setting
from parity.runtime import survey
from parity.runtime.survey import Module, Survey


class Mode(enum.Enum):
    SAME = np.str_("same")


class Owner:
    rate = np.float64(0.25)
    first = second = None

    @property
    def broken(self) -> int:
        raise RuntimeError("not built yet")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float64(0.5), 0.5),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.array(2.0), 2.0),
        (np.array([2.5]), 2.5),
        (np.array([[1, 2]]), [[1, 2]]),
        (np.zeros(1000), "ndarray"),
        (np.dtype("float32"), "float32"),
        (Mode.SAME, "same"),
        (Path("a"), "a"),
        ((np.int64(1), None, {"k": np.float16(2)}), [1, None, {"k": 2.0}]),
        (OrderedDict([(np.int64(1), True)]), {"1": True}),
        (len, "builtin_function_or_method"),
    ],
)
def test_a_value_becomes_plain(value: object, expected: object) -> None:
    found = plain(value)
    assert (found, type(found)) == (expected, type(expected))
    msgspec.json.encode(found)


def test_an_attribute_that_cannot_be_read_counts_as_absent() -> None:
    assert setting(Owner(), ["broken", "rate"]) == 0.25
    assert setting(Owner(), ["broken", "absent"]) is None


def test_a_tensor_that_is_trained_is_no_setting() -> None:
    class Trained:
        def numpy(self) -> None:
            raise RuntimeError("a tensor that requires grad")

    assert setting(SimpleNamespace(p=Trained()), ["p"]) is None


def test_a_survey_with_numpy_scalars_can_be_written(tmp_path: Path) -> None:
    module = Module(path="", kind="Net", facts={"rate": np.float64(0.5), "heads": np.int64(2)})
    survey.write(tmp_path, Survey(side="torch", modules=[module], weights=[], called=[]))
    assert survey.read(tmp_path).modules[0].facts == {"rate": 0.5, "heads": 2}
