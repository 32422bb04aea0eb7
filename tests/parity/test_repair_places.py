"""Where a value may be changed: of small ports with layers that compute nothing, the places in their order."""

import sys
from pathlib import Path
from typing import Any

import pytest

from parity.repair.candidates import Places
from parity.repair.edit import Setting, edit, spliced
from parity.runtime import construction
from parity.runtime.survey import Made

made: list[Made | None] = []
HEAD = "from test_repair_places import Layer, Norm\n"


class Layer:
    def __init__(self, **kwargs: Any) -> None:
        if construction.made(self):
            made.append(construction.made(self))


class Norm(Layer):
    def __init__(self, epsilon: float = 1e-3, **kwargs: Any) -> None:
        super().__init__(**kwargs)


ROWS = {
    "a keyword": ("def build():\n    Norm(epsilon=1e-3)", ["Norm(epsilon=1e-5)"]),
    "a position": ("def build():\n    Norm(1e-3)", ["Norm(1e-5)"]),
    "left out": ("def build():\n    Norm()", ["Norm(epsilon=1e-5)"]),
    "left out behind others": ('def build():\n    Norm(\n        name=("x"),\n    )', ['name=("x"), epsilon=1e-5,']),
    "a constant": ("EPS = 1e-3\n\n\ndef build():\n    Norm(epsilon=EPS)", ["EPS = 1e-5", "Norm(epsilon=1e-5)"]),
    "another value": ("EPS = 1e-6\n\n\ndef build():\n    Norm(epsilon=EPS)", ["Norm(epsilon=1e-5)"]),
    "a variable": ("def build():\n    x, eps = 2, 1e-3\n    Norm(epsilon=eps)",
        ["x, eps = 2, 1e-5", "Norm(epsilon=1e-5)"]),
    "an entry": ('C = {"n": 1e-3}\n\n\ndef build():\n    Norm(epsilon=C["n"])',
        ['C = {"n": 1e-5}', "Norm(epsilon=1e-5)"]),
    "entries": ("C = dict(epsilon=1e-3)\n\n\ndef build():\n    Norm(**C)", ["C = dict(epsilon=1e-5)"]),
    "a config": (
        "class C:\n    def __init__(self, n):\n        self.n = n\n\n\ndef norm(c):\n    Norm(epsilon=c.n)\n\n\n"
        "def build():\n    norm(C(n=1e-3))",
        ["norm(C(n=1e-5))", "Norm(epsilon=1e-5)"],
    ),
    "a config's default": ("class C:\n    n = 1e-3\n\n\ndef build():\n    c = C()\n    Norm(epsilon=c.n)",
        ["n = 1e-5", "Norm(epsilon=1e-5)"]),
    "arguments of arguments": (
        "def norm(x, n):\n    Norm(epsilon=n)\n\n\ndef block(n):\n    norm(0, n)\n\n\ndef build():\n    block(n=1e-3)",
        ["block(n=1e-5)", "norm(0, 1e-5)", "Norm(epsilon=1e-5)"],
    ),
    "a default": ("def norm(n=1e-3):\n    Norm(epsilon=n)\n\n\ndef build():\n    norm()",
        ["def norm(n=1e-5):", "norm(n=1e-5)", "Norm(epsilon=1e-5)"]),
    "kept for later": (
        "class Block(Layer):\n    def __init__(self, n=1e-3):\n        super().__init__()\n        self.n = n\n"
        "        self.build()\n\n    def build(self):\n        Norm(epsilon=self.n)\n\n\ndef build():\n    Block(1e-3)",
        ["Block(1e-5)", "self.n = 1e-5", "Norm(epsilon=1e-5)"],
    ),
    "of a base class": (
        "class Own(Norm):\n    def __init__(self):\n        super().__init__(epsilon=1e-3)\n\n\nbuild = Own",
        ["super().__init__(epsilon=1e-5)"],
    ),
    "another file": ("import settings\nfrom settings import EPS as n\n\n\ndef build():\n    Norm(epsilon=n)",
        ["EPS = 1e-5", "Norm(epsilon=1e-5)"]),
    "another file's attribute": ("import settings\n\n\ndef build():\n    Norm(epsilon=settings.EPS)",
        ["EPS = 1e-5", "Norm(epsilon=1e-5)"]),
    "computed": ("N = 3\n\n\ndef build():\n    Norm(epsilon=10 ** -N)", ["Norm(epsilon=1e-5)"]),
    "in a comprehension": ("def build(n=1e-3):\n    [Norm(epsilon=n) for _ in range(1)]",
        ["def build(n=1e-5):", "[Norm(epsilon=1e-5) for _ in range(1)]"]),
    "in a loop": ("def build():\n    for n in (1e-3,):\n        Norm(epsilon=n)", ["Norm(epsilon=1e-5)"]),
}  # fmt: skip


@pytest.fixture
def port(tmp_path, monkeypatch):
    """`port(text)`: how the last layer of a port is made; beside it is a file of settings."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "settings.py").write_text("EPS = 1e-3\n")

    def run(text: str) -> tuple[Made, list[Made]]:
        (tmp_path / "port.py").write_text(f"{HEAD}{text}\n")
        for name in ("port", "settings"):
            sys.modules.pop(name, None)
        made.clear()
        __import__("port").build()
        last = made[-1]
        assert last is not None
        return last, [each for each in made[:-1] if each]

    return run


@pytest.mark.parametrize(("text", "expected"), ROWS.values(), ids=ROWS)
def test_places_in_their_order(text: str, expected: list[str], port, tmp_path: Path) -> None:
    last, owners = port(text)
    places = Places(Setting(("epsilon",), 1e-3, 1e-5), tmp_path).of_object(last, owners[::-1])
    edits = [change for place in places if (change := edit(place, 1e-5, tmp_path))]
    assert [change.source[1] for change in edits] == expected
    for change in edits:
        compile(spliced((tmp_path / change.path).read_bytes(), change.splices), "port", "exec")


@pytest.mark.parametrize("written", ["(1, 2)", "( 1, 2 )", "(1, 2,)"])
def test_a_tuple_is_replaced_with_its_parentheses(written: str, port, tmp_path: Path) -> None:
    port(f"def build():\n    return sum({written}), Norm()")
    (place,) = Places(Setting(("axis",), [1, 2], [2, 3]), tmp_path).on_line(tmp_path / "port.py", 3)
    changed = edit(place, [2, 3], tmp_path)
    assert changed and changed.source[1] == "return sum((2, 3)), Norm()"


@pytest.mark.parametrize("name", ["factor", "_factor"])
def test_what_a_class_computes_for_an_attribute_is_found(name: str, port, tmp_path: Path) -> None:
    own = (
        f"class Own(Layer):\n    def __init__(self, n):\n        super().__init__()\n        self.{name} = 2 * n\n\n\n"
    )
    last, _ = port(f"{own}def build():\n    Own(2)")
    ((place, text),) = Places(Setting(("factor",), 4, 5), tmp_path).in_class(last)
    assert text == "2 * n" == (tmp_path / "port.py").read_text()[slice(*place.span)]
    assert not list(Places(Setting(("other",), 4, 5), tmp_path).in_class(last))


def test_the_arguments_of_a_class_are_those_of_its_bases_too() -> None:
    class Own(Norm):
        def __init__(self, *sizes: int, gain: float = 1.0, **kwargs: Any) -> None:
            super().__init__(**kwargs)

    class Odd(Layer):
        __init__ = int.from_bytes  # whatever it is: the survey of a model must not fail for it

    assert construction.arguments(Norm) == (["epsilon"], ["epsilon"])
    assert construction.arguments(Own)[1] == ["gain", "epsilon"]
    assert construction.arguments(type("C", (), {"__init__": dict.update})) == ([], [])
    assert isinstance(construction.arguments(Odd)[0], list)
