"""docs/causes.md lists the ids of all causes, and none besides."""

import ast
import functools
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from parity import diagnose
from parity.config.pair import SEED, UNNAMED
from parity.diagnose.formula import Formula, Trait
from parity.diagnose.layers import rounding

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| ((?:`[\w.]+`(?:, )?)+) \| ", re.MULTILINE)
ID = re.compile(r"[a-z0-9_]+\.[a-z0-9_]+")
# These name branches, findings and files.
OTHERS = ("expect.py", "coverage.py", "script_records.py", "script_targets.py", "script_told.py")
# What operations.py and others make of a kind of layer and the name of a setting.
OF_OPERATIONS = {
    "reshape.order", "concatenation.order", "split.order", "halves.order", "repeat.order", "gather.order", "lstm.order",
    "gru.order", "simple_rnn.order", "mask.fill", "mask.missing", "state.missing", "top_k.normalisation",
    "loss.normalisation",
    "loss.class_weight", "smooth_l1_loss.form",
    "cross_entropy.ignored", "normalize.axis", "roll.direction", "zero_padding.padding", "compile.loss_weights",
    "attention.window", "cast.dtype", "function.arguments", "layers.order",
}  # fmt: skip
# Weights and modules by name, files, and settings that are named with their layers.
NO_CAUSES = {
    "out_proj.weight", "out_proj.bias", "encoder.norm", "decoder.norm", "facts.json", "varied.npz",
    "max_pool.pool_mode", "average_pool.pool_mode", "module.sum",
}  # fmt: skip


def on_the_page() -> list[str]:
    rows = ROW.findall((ROOT / "docs" / "causes.md").read_text())
    return [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]


def traits(value: Any) -> Iterator[str]:
    """The causes of all traits within a value."""
    if isinstance(value, Trait):
        yield value.cause
    elif isinstance(value, Formula):
        yield from traits(value.traits)
    elif isinstance(value, dict):
        yield from traits(tuple(value.values()))
    elif isinstance(value, tuple):
        for each in value:
            yield from traits(each)


@functools.cache
def of_formulas() -> set[str]:
    """The causes of all traits of all formulas; their ids may be made of parts."""
    names = [module.name for module in pkgutil.walk_packages(diagnose.__path__, "parity.diagnose.")]
    modules = [importlib.import_module(name) for name in names if ".planted" not in name]
    return {cause for module in modules for value in vars(module).values() for cause in traits(value)}


def of_roundings() -> set[str]:
    """What the float32 run may be rounded to: the first of each row of the table of roundings."""
    tables = [value for value in vars(rounding).values() if isinstance(value, tuple)]
    return {f"precision.{row[0]}" for table in tables for row in table if isinstance(row, tuple)}


@functools.cache
def in_the_source() -> set[str]:
    """All texts of the form of an id where causes are named."""
    folders = (ROOT / "parity" / name for name in ("diagnose", "pairs"))
    files = [file for folder in folders for file in folder.rglob("*.py") if file.name not in OTHERS]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    formats = [node.format_spec for node in nodes if isinstance(node, ast.FormattedValue) and node.format_spec]
    nodes = set(nodes) - {part for each in formats for part in ast.walk(each)}
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {text for text in texts if ID.fullmatch(text)} - NO_CAUSES


def test_the_page_lists_every_cause_and_no_other():
    listed = on_the_page()
    assert len(listed) == len(set(listed))
    known = of_formulas() | in_the_source() | of_roundings() | OF_OPERATIONS | {SEED, *UNNAMED}
    assert set(listed) == known


def test_causes_of_traits_are_found():
    assert {"layer_norm.epsilon", "conv2d.bias", "adamw.weight_decay"} <= of_formulas()
    assert {"buffer.missing", "placement.layer"} <= in_the_source()
    assert of_roundings() == {"precision.tf32", "precision.bfloat16", "precision.float16"}
