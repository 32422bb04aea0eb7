"""What a reader sees: numbers agree with their nouns, a zero has no sign, and tensors are named in words."""

import ast
import itertools
from pathlib import Path

import pytest

from parity.core.wording import agree, count
from parity.trace.keys import in_words, owner

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [
        (1, "device", "1 device"),
        (2, "device", "2 devices"),
        (0, "false alarm", "0 false alarms"),
        (3, "copy", "3 copies"),
        (2, "key", "2 keys"),
        (2, "process", "2 processes"),
        (2, "branch", "2 branches"),
        (1, "axis", "1 axis"),
        (4, "axis", "4 axes"),
        (-1, "step", "-1 steps"),
    ],
)
def test_a_noun_goes_with_its_number(number: int, noun: str, said: str) -> None:
    assert count(number, noun) == said


def test_a_verb_goes_with_its_number() -> None:
    assert [agree(number, word) for word in ("is", "has", "was", "it") for number in (1, 2)] == [
        "is", "are", "has", "have", "was", "were", "it", "them",
    ]  # fmt: skip


def counted(file: Path) -> list[str]:
    """Texts in which the length of something is followed by a plural that it may not go with."""
    found, text = [], file.read_text()
    for node in ast.walk(ast.parse(text if "{len(" in text or "{sum(" in text else "")):
        parts = node.values if isinstance(node, ast.JoinedStr) else []
        for part, after in itertools.pairwise(parts):
            is_length = isinstance(part, ast.FormattedValue) and ast.unparse(part.value).startswith(("len(", "sum("))
            word = after.value.partition(" ")[2].split(" ")[0] if isinstance(after, ast.Constant) else ""
            if is_length and after.value.startswith(" ") and word.rstrip(",;.:)").endswith("s"):
                found.append(f"{file.name}:{node.lineno}: {ast.unparse(part.value)}{after.value}")
    return found


# Where there are always several.
SEVERAL = {
    "parity/selftest/__main__.py", "parity/config/cases.py",  # of the catalogue, of the cases
    "parity/doctor/rules/placement.py", "parity/pairs/weights/rules.py", "parity/pairs/extent.py",
    "parity/pairs/causes/pair_causes.py",
    "torch_impl/models/block.py", "keras_impl/models/block.py",  # examples that import nothing of parity
}  # fmt: skip


def test_no_number_in_the_source_goes_with_a_plural_alone() -> None:
    files = [path for folder in ("parity", "torch_impl", "keras_impl") for path in (ROOT / folder).rglob("*.py")]
    assert [line for file in files if str(file.relative_to(ROOT)) not in SEVERAL for line in counted(file)] == []


def test_a_number_with_a_plural_alone_is_found(tmp_path: Path) -> None:
    file = tmp_path / "said.py"
    file.write_text('f"{len(cases)} cases failed, {count(len(cases), 1)} in all, {number} left"')
    assert counted(file) == ["said.py:1: len(cases) cases failed, "]


@pytest.mark.parametrize(
    ("kind", "name", "module", "said"),
    [
        ("activation", "1", "LayerNorm", "output of module `1` (LayerNorm)"),
        ("activation", "encoder.norm", "", "output of module `encoder.norm`"),
        ("activation", "lstm#1", "LSTM", "output of module `lstm` (LSTM), number 2 in the step"),
        ("activation", "linear@shard1", "", "output of module `linear`, shard1"),
        ("activation", "(model)", "Net", "output of the model (Net)"),
        ("activation", "(model).logits", "Net", "output `logits` of the model (Net)"),
        ("activation", "(model)#2", "", "output of the model, number 3 in the step"),
        ("input", "encoder", "Encoder", "input of module `encoder` (Encoder)"),
        ("input", "input", "", "input of the model"),
        ("input", "target", "", "target of the loss"),
        ("sample", "indices", "", "samples of the batch"),
        ("loss", "loss", "", "loss"),
        ("loss", "loss#1", "", "loss, number 2 in the step"),
        ("gradient", "1.weight", "LayerNorm", "gradient of parameter `1.weight` (LayerNorm)"),
        ("gradient", "w@local", "", "gradient of parameter `w`, before it is reduced over replicas"),
        ("gradient", "(input).x", "", "gradient of input `x`"),
        ("update", "1.weight", "Linear", "update of parameter `1.weight` (Linear)"),
        ("parameter", "w", "Net", "parameter `w` (Net)"),
        ("buffer", "norm.running_mean", "BatchNorm2d", "buffer `norm.running_mean` (BatchNorm2d)"),
        ("optimizer_state", "0.weight.exp_avg", "Linear", "optimizer state `0.weight.exp_avg` (Linear)"),
        ("layout", "shortcut.0", "", "device layout: `shortcut.0`"),
    ],
)
def test_a_tensor_in_words(kind: str, name: str, module: str, said: str) -> None:
    assert str(in_words(kind, name, module)) == said


@pytest.mark.parametrize(
    ("kind", "name", "path"),
    [
        ("activation", "encoder.norm#1", "encoder.norm"),
        ("activation", "(model).logits", ""),
        ("input", "encoder", "encoder"),
        ("gradient", "encoder.norm.weight@local", "encoder.norm"),
        ("update", "scale", ""),
        ("optimizer_state", "encoder.norm.weight.exp_avg", "encoder.norm"),
        *[(kind, name, None) for kind, name in (("input", "target"), ("loss", "loss"), ("gradient", "(input).x"))],
    ],
)
def test_the_module_of_a_tensor(kind: str, name: str, path: str | None) -> None:
    assert owner(kind, name) == path
