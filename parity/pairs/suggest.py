"""Lines for a pair's file that accept the differences that are understood, or say how an output is laid out."""

import glob
import json
import re
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from parity.config.pair import UNKNOWN
from parity.core.arrays import Array
from parity.pairs.activations.values import SAME, Tensor, fit
from parity.pairs.show import as_toml
from parity.pairs.told import VALUES
from parity.results import CaseResult, Suggestion
from parity.trace.mapping import Mapping

Cause = dict[str, Any]
# Differences that remain in a faithful port, since no argument of the framework takes them away.
INHERENT = {
    "batch_norm.running_variance": "torch's running variance is the unbiased one, Keras's the biased one, and neither "
    "layer has an argument for the other",
    "weights.sum": "torch trains two biases where Keras's layer has one, their sum, and no argument for two: the sum "
    "moves twice as far in torch, unless one of its biases has requires_grad = False",
    "constant.precision": "TensorFlow holds a constant of this function in float32, and has no argument for it",
    "sgd.momentum_form": "Keras's SGD has the learning rate within its momentum, torch's has not, and neither has an "
    "argument for the other; without a schedule they are the same",
}


def layout(key: str, torch: Array, keras: Array) -> list[Suggestion]:
    """An [outputs] section where a model's only output holds torch's very numbers in another order of axes."""
    found = fit(Tensor(torch), Tensor(keras))
    moved = found and tuple(keras.shape[axis] for axis in found.order) == torch.shape
    if not found or not moved or found.distance > SAME or found.order == tuple(range(keras.ndim)):
        return []
    axes = [f"axis{number}" for number in range(torch.ndim)]
    there = [axes[found.order.index(axis)] for axis in range(keras.ndim)]
    toml = f'[outputs.output]\nkeras_layout = "{" ".join(axes)} -> {" ".join(there)}"\n'
    return [Suggestion(why=f"{key} holds the same numbers in another order of axes", toml=toml)]


def suggestions(result: CaseResult, modules: Sequence[str]) -> list[Suggestion]:
    """An [[expect]] for each cause that has a name and is not accepted yet. `modules`: torch's, for the globs."""
    accepted = {(each["id"], each["where"]) for each in result.expected}
    named = [each for each in result.causes if each["id"] not in (UNKNOWN, VALUES)]
    named = [each for each in named if (each["id"], each["where"]) not in accepted]
    if result.verdict == "match":
        return []
    return [
        Suggestion(why=_why(cause), toml=_section(cause, where))
        for cause, places in _alike(named)
        for where in _globs(places, modules)
    ]


def loading(result: CaseResult, mapping: Mapping) -> list[Suggestion]:
    """[[weights]] that load torch's values where both builders give some, they differ, and they matter."""
    entries = [how.entry for how in (*mapping.unlike.values(), *mapping.unfilled.values())]
    if not entries or result.verdict == "match":
        return []
    rules = [entry for number, entry in enumerate(entries) if entry not in entries[:number]]
    why = "where the port is given torch's values later, as from a checkpoint, rather than its builder's"
    return [Suggestion(why=why, toml=as_toml(Mapping(entries=rules)))]


def _why(cause: Cause) -> str:
    """Whether anything else can be done."""
    return INHERENT.get(cause["id"]) or f"{_sides(cause)}: mend the port if it can be set; to accept it as it is"


def _section(cause: Cause, where: str) -> str:
    fields = {"cause": cause["id"], "where": where, "reason": INHERENT.get(cause["id"]) or _sides(cause)}
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
    return "\n".join(["[[expect]]", *lines, ""])


def _sides(cause: Cause) -> str:
    """What each side does."""
    sides = [f"{name} {cause[name]}" for name in ("torch", "keras") if cause.get(name) is not None]
    return ", ".join(sides) or str(cause["evidence"])


def _alike(causes: list[Cause]) -> Iterator[tuple[Cause, list[str]]]:
    """The first of the causes that say the same, with the places of all."""
    groups: dict[tuple[str, str], list[Cause]] = {}
    for cause in causes:
        groups.setdefault((str(cause["id"]), _sides(cause)), []).append(cause)
    for group in groups.values():
        yield group[0], list(dict.fromkeys(str(cause["where"]) for cause in group))


def _globs(places: list[str], modules: Collection[str]) -> Iterator[str]:
    """Globs that fit these places and no other module: places that differ by their numbers alone are one."""
    groups: dict[str, list[str]] = {}
    for place in places:
        groups.setdefault(re.sub(r"\d+", "*", glob.escape(place)), []).append(place)
    for pattern, group in groups.items():
        fitting = {module for module in modules if fnmatchcase(module, pattern)}
        if len(group) > 1 and fitting <= set(group):
            yield pattern
        else:
            yield from map(glob.escape, group)
