"""What tests of several folders demand of a case that is to pass, and the judge of their own pairs."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parity.pairs import file
from parity.pairs.compare import compared
from parity.results import CaseResult

PAIRS = Path(__file__).parent / "pairs"
PAIR = """
[pair]
name = "{name}"
torch = "{name}_torch:{model}"
keras = "{name}_keras:{model}"
[inputs.x]
shape = {shape}
{more}
"""
Judge = Callable[..., CaseResult]


def passes_strict(result: CaseResult) -> bool:
    """A match, and nothing that --strict would fail."""
    return result.verdict == "match" and not result.findings


def remembered(judge: Judge) -> Judge:
    """Return the judge with a memory: what is asked for again is not recorded again."""
    results: dict[str, CaseResult] = {}

    def judged(*given: Any, **changes: Any) -> CaseResult:
        pair = repr((given, changes))
        if pair not in results:
            results[pair] = judge(*given, **changes)
        return results[pair]

    return judged


def judge_of(name: str, backends: Any, folders: pytest.TempPathFactory) -> Judge:
    """Return `judge(model, shape, the rest of the file, both={...}, keras arguments)`, which judges a pair of `name`.

    Its models are those of tests/pairs/{name}_torch.py and its counterpart; `both` are arguments of both builders.
    """
    numbers = itertools.count()

    def judge(model: str, shape: list[int], more: str = "", both: dict | None = None, **changes: Any) -> CaseResult:
        folder = folders.mktemp(f"{name}{next(numbers)}")
        path = folder / f"{name}.toml"
        path.write_text(PAIR.format(name=name, model=model, shape=shape, more=more))
        overrides = [f"pair.kwargs.{key}={json.dumps(value)}" for key, value in (both or {}).items()]
        overrides += [f"pair.keras_kwargs.{key}={json.dumps(value)}" for key, value in changes.items()]
        pair = file.load(path, overrides)._replace(search=[str(PAIRS)])
        return compared(pair, backends, folder, varied=False)

    return judge


def causes(result: CaseResult) -> list[tuple[str, str]]:
    """Return id and place of each cause of a result."""
    return [(cause.id, cause.where) for cause in result.causes]
