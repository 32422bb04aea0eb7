"""The README's picture is what its command prints today, but for the numbers."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "docs" / "picture.py"


def words(picture: str) -> str:
    """A picture without numbers, nor the spaces that numbers of other lengths leave."""
    return re.sub(r"\d+", "#", re.sub(r"&#160;|\s", "", picture))


@pytest.mark.slow
def test_the_picture_is_of_today():
    spec = importlib.util.spec_from_file_location("picture", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert words(script.drawn(script.printed())) == words(script.PICTURE.read_text()), "run python docs/picture.py"


def test_another_word_is_noticed():
    assert words("<text>1.5&#160;&#160;match</text>") == words("<text>20.25&#160;match</text>")
    assert words("<text>match</text>") != words("<text>diverged</text>")
