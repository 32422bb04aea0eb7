"""Edits of source: which arguments of Keras's set what a cause names, a new value in a file or in the pair's own.

Of several edits a copy of the folder is made, and a diff. A cause's values are those of the formula that found it: a
momentum weighs the new value there, as in PyTorch.
"""

import ast
import difflib
import io
import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from parity.core.groups import by_key
from parity.repair.source import Place, Source, Span
from parity.results import Cause
from parity.runtime.experiment import Change

SKIPPED = ("__pycache__",)  # Python would write the changed files' bytecode beside the user's own
CONTEXT = 3  # lines around a change in the diff
Convert = Callable[[Any], Any]
EXPONENT = re.compile(r"e([+-])0(\d)")


class Expression(str):
    """A value that only Python code can say, such as a function; the code may use the name `keras`."""


def code(value: Any) -> str:
    """Return the Python expression for a value."""
    if isinstance(value, Expression):
        return str(value)
    return EXPONENT.sub(r"e\1\2", repr(tuple(value) if isinstance(value, list) else value))


class Argument(NamedTuple):
    """An argument of Keras's: its name (or names, of which each class has one) and its value for a cause's value.

    `causes`: the ids of those that it removes. These and the names are separated by spaces.
    """

    names: str
    causes: str
    value: Convert = lambda value: value


class Setting(NamedTuple):
    """What is to be changed: the names that the argument may have, its old and its new value."""

    names: tuple[str, ...]
    old: Any
    new: Any


TANH: Final = Expression("lambda x: keras.activations.gelu(x, approximate=True)")
ACTIVATIONS: Final = {"identity": None, "gelu (tanh)": TANH, "gelu_tanh": TANH}
APPLIED: Final = {"applied": True, "added": True, "left out": False}


def _chosen(values: Mapping[Any, Any]) -> Convert:
    return lambda value: values.get(value, value)


def _padding(value: Any) -> str:
    """Return Keras's word for a padding, which is a number of pixels for each side in a formula."""
    return "same" if any(value if isinstance(value, (list, tuple)) else [value]) else "valid"


# Of several for one cause, an object takes one.
_TABLE: Final = (
    Argument("negative_slope alpha", "relu.slope"),
    Argument("max_value", "relu.cap", lambda value: None if value in (None, math.inf) else value),
    Argument("approximate", "gelu.form", lambda value: value != "exact"),
    Argument("activation", "gelu.form", lambda value: "gelu" if value == "exact" else TANH),
    Argument("activation", "activation.kind", _chosen(ACTIVATIONS)),
    Argument("activation", "linear.activation conv2d.activation conv_transpose.activation", _chosen(ACTIVATIONS)),
    Argument("axis", "softmax.axis"),
    Argument("use_bias", "linear.bias conv2d.bias conv_transpose.bias attention.bias", _chosen(APPLIED)),
    Argument("strides", "conv2d.stride conv_transpose.stride"),
    Argument("dilation_rate", "conv2d.dilation"),
    Argument("padding", "conv2d.padding conv_transpose.padding max_pool.padding", _padding),
    Argument("epsilon", "layer_norm.epsilon group_norm.epsilon batch_norm.epsilon adam.epsilon"),
    Argument("scale", "layer_norm.weight group_norm.weight batch_norm.weight", _chosen(APPLIED)),
    Argument("center", "layer_norm.bias group_norm.bias batch_norm.bias", _chosen(APPLIED)),
    Argument("groups", "group_norm.groups"),
    Argument("momentum", "batch_norm.momentum", lambda value: round(1 - value, 12)),
    Argument("num_heads", "attention.num_heads"),
    Argument("rate dropout", "dropout.rate"),
    Argument("learning_rate", "sgd.learning_rate adam.learning_rate"),
    Argument("momentum", "sgd.momentum"),
    Argument("nesterov", "sgd.nesterov"),
    Argument("beta_1", "adam.beta1"),
    Argument("beta_2", "adam.beta2"),
    Argument("amsgrad", "adam.amsgrad"),
    Argument("weight_decay", "adamw.weight_decay weight_decay.value"),
    Argument("global_clipnorm clipnorm", "clip.norm"),
)
ARGUMENTS: Final = by_key((cause, argument) for argument in _TABLE for cause in argument.causes.split())


def settings(cause: Cause) -> list[Setting]:
    """Return what may be changed on Keras's side to remove a cause, the likeliest first; [] if no argument sets it."""
    old, new = cause.sides.get("keras"), cause.sides.get("torch")
    known = ARGUMENTS.get(cause.id, ()) if new is not None else ()
    return [Setting(tuple(each.names.split()), each.value(old), each.value(new)) for each in known]


def changed(change: Change) -> Setting:
    """Return what an experiment has changed on Keras's side: a setting of a layer, or a value in the code."""
    new = ACTIVATIONS.get(change.after, change.after) if change.kind == "callable" else change.after
    return Setting((change.name,), change.before, new)


class Edit(NamedTuple):
    """A change of a file below the folder that is being repaired, by a path relative to that folder.

    `key`, `value`: for the pair's file, the entry of keras_kwargs. `line`: of the change, counted from 1.
    `source`: that line before the change and after it.
    """

    path: Path
    splices: tuple[tuple[Span, str], ...]
    line: int
    source: tuple[str, str]
    key: str = ""
    value: Any = None


def edit(place: Place, value: Any, root: Path) -> Edit | None:
    """Return the change that sets a value at a place; None if the place has that value, or cannot have it."""
    if place.key:
        return _argument(place, value, root)
    source = Source(place.path)
    splices = [(place.span, place.template.format(code(value)))]
    if isinstance(value, Expression) and "keras" in value and source.imported("keras") is None:
        body = source.module.body  # before the first import
        first = next((node for node in body if isinstance(node, ast.Import | ast.ImportFrom)), body[0])
        start = source.span(first).start
        splices.append((Span(start, start), "import keras\n"))
    changed = spliced(source.bytes, splices)
    line = source.line(place.span.start)
    after = changed.decode().split("\n")[line - 1 + len(splices) - 1]
    before = source.bytes.decode().split("\n")[line - 1]
    if before == after:
        return None
    return Edit(place.path.relative_to(root), tuple(splices), line, (before.strip(), after.strip()))


def spliced(text: bytes, splices: Sequence[tuple[Span, str]]) -> bytes:
    """Return a text with parts of it replaced. Raises ValueError if the parts overlap."""
    last = len(text) + 1
    for span, new in sorted(splices, reverse=True):
        if span.end > last or (span.end == last and span.start == span.end):
            raise ValueError("the changes overlap")
        text, last = text[: span.start] + new.encode() + text[span.end :], span.start
    return text


def _argument(place: Place, value: Any, root: Path) -> Edit | None:
    """Return the change of the pair's file that passes a value to Keras's builder."""
    if isinstance(value, Expression) or value is None or not place.path.is_relative_to(root):
        return None
    before = place.path.read_bytes().decode()
    after = with_argument(before, place.key, value)
    if after is None or after == before:
        return None
    pairs = zip(before.split("\n"), after.split("\n"), strict=False)
    number, lines = next((n, lines) for n, lines in enumerate(pairs) if lines[0] != lines[1])
    whole = ((Span(0, len(before.encode())), after),)
    return Edit(place.path.relative_to(root), whole, number + 1, (lines[0].strip(), lines[1].strip()), place.key, value)


def with_argument(text: str, key: str, value: Any) -> str | None:
    """Return the text of a pair's file with an argument for Keras's builder alone; None if it does not set it."""
    table = tomllib.loads(text.removeprefix("\ufeff"))
    given = table["pair"]
    if key not in {**given.get("kwargs", {}), **given.get("keras_kwargs", {})}:
        return None
    wanted = {**table, "pair": {**given, "keras_kwargs": {**given.get("keras_kwargs", {}), key: value}}}
    number = EXPONENT.sub(r"e\1\2", json.dumps(value, ensure_ascii=False))  # or a boolean, a text, a list of these
    written = f"{key} = {number}"
    entry = re.compile(rf"(?<![\w.-]){re.escape(key)}\s*=\s*[^,}}#\n]*[^,}}#\s]")
    attempts = [f"{text[: match.start()]}{written}{text[match.end() :]}" for match in entry.finditer(text)]
    attempts.append(re.sub(r"(keras_kwargs\s*=\s*\{)", rf"\g<1> {written},", text, count=1))
    attempts.append(re.sub(r"(\[pair\.keras_kwargs\][^\n]*\n)", rf"\g<1>{written}\n", text, count=1))
    attempts.append(re.sub(r"(\[pair\][^\n]*\n)", rf"\g<1>keras_kwargs = {{ {written} }}\n", text, count=1))
    return next((attempt for attempt in attempts if _parsed(attempt) == wanted), None)


def _parsed(text: str) -> Mapping[str, Any] | None:
    with suppress(tomllib.TOMLDecodeError):
        return tomllib.loads(text.removeprefix("\ufeff"))
    return None


def copy_folder(root: Path, folder: Path, changed: Mapping[Path, bytes]) -> None:
    """Make `folder` a copy of `root` with the contents of `changed`, by paths relative to it."""
    real = {parent for path in changed for parent in path.parents} | {Path()}
    for parent in sorted(real):
        (folder / parent).mkdir(parents=True, exist_ok=True)
        for entry in (root / parent).iterdir():
            relative = parent / entry.name
            if entry.name not in SKIPPED and relative not in real and relative not in changed:
                (folder / relative).symlink_to(entry)
    for path, content in changed.items():
        (folder / path).write_bytes(content)


def diff_of(root: Path, changed: Mapping[Path, bytes], reasons: Sequence[str]) -> str:
    """Return the changes as a unified diff for `patch -p1` or `git apply`, with the reasons as comments at its head."""
    lines = [f"# {reason}\n" for reason in reasons]
    for path, content in sorted(changed.items()):
        # As lines of a stream, which only a newline ends: str.splitlines would take a form feed for one as well.
        before, after = (list(io.StringIO(text.decode())) for text in ((root / path).read_bytes(), content))
        names = f"a/{path.as_posix()}", f"b/{path.as_posix()}"
        for line in difflib.unified_diff(before, after, *names, n=CONTEXT):
            lines.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(lines)
