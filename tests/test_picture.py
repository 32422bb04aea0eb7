"""The README's picture is what its command prints today, but for the numbers."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "docs" / "picture.py"


def words(picture: str) -> list[str]:
    """The texts of a picture without spaces and numbers, nor the bits of the table, which are measured."""
    texts = [re.sub(r"&#160;|\s", "", text) for text in re.findall(r">([^<>]*)</text>", picture)]
    return [re.sub(r"\d+(?:\.\d+)?", "#", text) for text in texts if text and not re.search(r"\d\+\d", text)]


@pytest.mark.slow
def test_the_picture_is_of_today():
    spec = importlib.util.spec_from_file_location("picture", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert words(script.drawn(script.printed())) == words(script.PICTURE.read_text()), "run python docs/picture.py"


def test_another_word_is_noticed():
    assert words("<text>1.5&#160;&#160;match</text>") == words("<text>20&#160;match</text>") == ["#match"]
    assert words("<text>match</text>") != words("<text>diverged</text>")
    assert words("<text>28 = 0+1 weight</text>") == words("<text>= = 10+2</text>") == []


def test_the_picture_of_the_benchmark_shows_the_times_that_are_kept(monkeypatch):
    """As they are printed today."""
    monkeypatch.syspath_prepend(SCRIPT.parent)
    spec = importlib.util.spec_from_file_location("bench_picture", SCRIPT.parent / "bench_picture.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.drawn() == script.PICTURE.read_text(), "run python docs/bench_picture.py --draw"
