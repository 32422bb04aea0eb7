"""Suggest lines for a pair's file, and write them into it (--accept).

They accept an understood difference, or state how an output is laid out.
"""

import glob
import json
import os
import re
import shutil
import tempfile
import tomllib
from collections.abc import Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from parity.config.pair import SPARSE, SUM, UNNAMED, Expect
from parity.core.arrays import Array
from parity.core.errors import UsageError
from parity.core.groups import grouped
from parity.pairs.activations.layouts import pattern
from parity.pairs.activations.values import SAME, Tensor, fit
from parity.pairs.causes.pair_causes import VALUES
from parity.pairs.untrained.random_tables import DISTRIBUTION
from parity.pairs.weights.show import as_toml
from parity.results import CaseResult, Cause, Suggestion
from parity.trace.mapping import Mapping

WITHIN = (
    "Keras's optimizer has its epsilon within the root, torch's beside it, and neither has an argument for the other"
)
MEND = "change the port if it can be set to do what torch does, or accept the difference"
MOST_SECTIONS = 3  # in which an inherent difference is accepted place by place
# Differences that remain in a faithful port, since no argument of the framework takes them away.
INHERENT = {
    "batch_norm.running_variance": "torch's running variance is the unbiased one, Keras's the biased one, and neither "
    "layer has an argument for the other",
    "weights.sum": "torch trains two biases where Keras's layer has one, their sum, and no argument for two: the sum "
    "moves twice as far in torch; where this is accepted, torch's runs hold the second bias at 0",
    "constant.precision": "TensorFlow holds a constant of this function in float32, and has no argument for it",
    "op.precision": "an op of the framework computes in float32, whatever it is given, and has no argument for it",
    "rmsprop.epsilon_placement": WITHIN,
    "adagrad.epsilon_placement": WITHIN,
    "adam.epsilon_placement": "Keras's Adam adds its epsilon before the bias correction, torch's after it, and neither "
    "has an argument for the other",
    "adamax.epsilon_placement": "Keras's Adamax adds its epsilon to the maximum, torch's to each magnitude in it, and "
    "neither has an argument for the other",
    "nadam.momentum_decay": "Keras's Nadam has no argument for it; torch's momentum_decay=1.0 is the same",
    SPARSE: "TensorFlow's gradient of an embedding is a list of rows, and Keras's optimizers "
    "square those of one id before they are added",
    "clip.sparse_gradient": "TensorFlow's gradient of an embedding is a list of rows, and Keras's optimizers clip "
    "the rows before those of one id are added",
    "clip.epsilon": "torch's clip_grad_norm_ divides by the norm plus 1e-6, tf.clip_by_global_norm by the norm, and "
    "neither has an argument for it",
    "sgd.momentum_form": "Keras's SGD has the learning rate within its momentum, torch's has not, and neither has an "
    "argument for the other; without a schedule they are the same",
}


def inherent(causes: Collection[Cause]) -> list[Expect]:
    """Return what a file would say to accept those of the causes that any faithful port has."""
    return [
        Expect(cause=cause.id, where=glob.escape(cause.where), reason=INHERENT[cause.id])
        for cause in causes
        if cause.id in INHERENT
    ]


def layout(key: str, moved: str) -> Suggestion:
    """Suggest an [outputs] section for a model's only output, which holds torch's very numbers `moved` so."""
    toml = f'[outputs.output]\nkeras_layout = "{moved}"\n'
    return Suggestion(why=f"{key} holds the same numbers in another order of axes", toml=toml)


def order_of_axes(torch: Array, keras: Array) -> str:
    """Return the pattern from torch's axes to Keras's if they hold the same numbers in another order; else ""."""
    fitted = fit(Tensor(torch), Tensor(keras))
    moved = fitted and tuple(keras.shape[axis] for axis in fitted.order) == torch.shape
    if not fitted or not moved or fitted.distance > SAME or fitted.order == tuple(range(keras.ndim)):
        return ""
    return pattern(fitted.order)


def suggestions(result: CaseResult, modules: Sequence[str]) -> list[Suggestion]:
    """Suggest an [[expect]] section for each cause that has a name and is not accepted yet.

    `modules` are the paths of torch's modules: a glob in a suggestion must not match other modules than it is meant
    for.
    """
    accepted = {(cause.id, cause.where) for cause in result.expected}
    acceptable = [cause for cause in result.causes if cause.id not in (*UNNAMED, VALUES, DISTRIBUTION)]
    named = [cause for cause in acceptable if (cause.id, cause.where) not in accepted]
    if result.verdict == "match":
        return []
    return [
        Suggestion(why=INHERENT.get(alike[0].id) or f"{_sides(alike[0])}: {MEND}", toml=_section(alike[0], where))
        for alike in grouped(named, lambda cause: (cause.id, _sides(cause))).values()
        for where in _places(alike, modules)
    ]


def loading(result: CaseResult, mapping: Mapping) -> list[Suggestion]:
    """[[weights]] that load torch's values where both builders give some, they differ, and they matter."""
    entries = [how.entry for how in (*mapping.unlike.values(), *mapping.unfilled.values()) if how.entry]
    if not entries or result.verdict == "match":
        return []
    rules = [entry for number, entry in enumerate(entries) if entry not in entries[:number]]
    why = "where the port is given torch's values later, as from a checkpoint, rather than its builder's"
    return [Suggestion(why=why, toml=as_toml(Mapping(entries=rules)))]


def _section(cause: Cause, where: str) -> str:
    fields = {"cause": cause.id, "where": where, "reason": INHERENT.get(cause.id) or _sides(cause)}
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
    return "\n".join(["[[expect]]", *lines, ""])


def _sides(cause: Cause) -> str:
    """Describe what each side does, for example "torch 1e-05, keras 0.001"."""
    return ", ".join(f"{name} {value}" for name, value in cause.sides.items() if value is not None) or cause.evidence


def _places(alike: Sequence[Cause], modules: Collection[str]) -> list[str]:
    """Return the globs of a cause's places; of many where it is inherent, one that accepts it everywhere."""
    globs = list(_globs(dict.fromkeys(cause.where for cause in alike), modules))
    is_everywhere = len(globs) > MOST_SECTIONS and alike[0].id in INHERENT and alike[0].id != SUM
    return ["*"] if is_everywhere else globs


def _globs(paths: Iterable[str], modules: Collection[str]) -> Iterator[str]:
    """Yield globs that match these places and no other module; places that differ only in numbers share a glob."""
    for form, group in grouped(paths, lambda path: re.sub(r"\d+", "*", glob.escape(path))).items():
        fitting = {module for module in modules if fnmatchcase(module, form)}
        if len(group) > 1 and fitting <= set(group):
            yield form
        else:
            yield from map(glob.escape, group)


def accept(path: Path, suggested: list[Suggestion]) -> str:
    """Append the suggested sections that the file does not have yet, and return what was added. Raises UsageError."""
    target = path.resolve()
    try:
        text = target.read_bytes().decode("utf-8")
        existing = _sections(text)
        tomls = [each.toml for each in suggested]
        added = "\n".join(toml for toml in tomls if not all(section in existing for section in _sections(toml)))
        if added:
            newline = "\r\n" if "\r\n" in text else "\n"
            whole = text.rstrip("\r\n") + newline * 2 + added.replace("\n", newline)
            _parsed(whole)
            _replace(target, whole)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--accept: {path} cannot be written: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            f"--accept: {path} cannot be added to ({error}); if it has a line like expect = [], replace that by "
            "[[expect]] sections"
        ) from None
    return added


def _sections(text: str) -> list[dict[str, object]]:
    """Return a file's accepted differences, without their reasons, its outputs, and its rules for weights."""
    table = _parsed(text)
    expected = [
        {key: value for key, value in section.items() if key != "reason"} for section in table.get("expect", [])
    ]
    return [*expected, *({"output": name} for name in table.get("outputs", {})), *table.get("weights", [])]


def _parsed(text: str) -> dict[str, Any]:
    """Parse a file's text, which may begin with a byte order mark."""
    return tomllib.loads(text.removeprefix("\ufeff"))


def _replace(path: Path, text: str) -> None:
    """Write a temporary file next to the target and rename it, so that the target is never half written."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8"))
        shutil.copymode(path, draft)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
