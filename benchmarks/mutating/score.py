"""Score what is said of a mutant: caught, placed, named, and named wrongly.

All of it is derived from the mutation: its file and lines, what the clean port's run showed of these lines (which
layers they make, call, and stand within), and the setting with its old and new value. No mutant is looked at by hand.

- caught: the verdict is another than that of the clean port; where both are `subprecision`, the report names a place or
  a cause that the clean port's report does not have.
- placed: the place of the first difference, or of a cause, is a layer that the mutated lines make, call next or stand
  within, the layer (or the model) directly around one of these, a part of a layer that they make, or the outermost part
  of one that they call; for a mask also an attention in the layer that makes it; for what is first seen in a gradient
  also a layer that feeds one of these. Or the report tells the file and line itself.
- named: a cause other than `unknown` tells the setting: by its name, that of what is assigned or that of a function
  that it switches, or by what the mutated function makes according to its name and class (a mask, a bias, positions,
  an embedding), by its values (or their ratio), an operand of the operator, the line in its evidence, or the family of
  ids that belongs to the kind of mutation. Where the weights cannot be mapped, the report has no causes: it is placed
  and named if it lists a weight of these layers, or of one that only the mutant has.
- false: a cause other than `unknown`, which the clean port's report does not have, and which tells nothing of this.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Any

from mutating import arguments, operations

UNNAMED = ("unknown", "internal_error")
GRADIENTS = ("gradient", "update", "parameter", "optimizer_state")
FAMILIES: Mapping[str, Sequence[str]] = {
    operations.ACTIVATION: ("activation.*", "relu.*", "gelu.*", "softmax.*", "*.activation", "module.skipped"),
    operations.RESIDUAL: ("module.wiring", "module.skipped", "*residual*", "*bias*", "gradient.missing"),
    operations.ORDER: ("module.wiring", "*order*"),
    operations.MASK: ("*mask*", "*causal*"),
    operations.STOPPED: ("gradient.*", "update.frozen"),
    operations.REDUCTION: ("*reduction*", "*.sum", "pool.kind", "code.function", "*.scale"),
    operations.OPERATOR: ("code.operator", "module.operation"),
    arguments.CAST: ("precision.*", "*.precision", "*dtype*", "gradient.missing", "gradient.stopped"),
    arguments.AXIS: (
        "*axis*",
        "*axes*",
        "*layout*",
        "*order*",
        "*.packing",
        "*.heads",
        "*.batch_first",
        "*transpos*",
        "permute.*",
    ),
}
WORDS: Mapping[str, Sequence[str]] = {  # by a word that was mutated
    "relu": ("activation.*", "relu.*", "gelu.*", "*.activation"),
    "same": ("*.padding*", "cropping.*"),
}
LEFT_OUT = "left out"  # as causes say it
MEANINGLESS = ("use", "num", "is", "size", "kind", "form", "value", "number", "of", "the", "function", "constant")
MADE = ("mask", "bias", "position", "embedding", "rotary")  # what functions of their own make for a layer
SHORT: Mapping[str, str] = {"rope": "rotary"}  # embedding of positions
CLOSE = 1e-3  # of a value that was found by a search

Told = Mapping[str, Any]


def scored(line: Told) -> dict[str, Any]:
    """Return a mutant with its scores, which are derived from what is said of it and of the clean port."""
    if line["status"] != "real":
        return dict(line)
    told, clean = line["said"], line["clean"]
    caught = is_caught(told, clean)
    return {
        **line,
        "caught": caught,
        "placed": caught and is_placed(told, line, clean),
        "named": caught and is_named(told, line, clean),
        "false": false_causes(told, line, clean),
    }


def is_caught(told: Told, clean: Told) -> bool:
    """Return whether a mutant's report is another than that of the clean port."""
    if told["verdict"] != clean["verdict"] or told["verdict"] == "match":
        return bool(told["verdict"] != clean["verdict"])
    return bool(told["place"] != clean["place"] or _keys(told) - _keys(clean))


def is_placed(told: Told, mutant: Told, clean: Told) -> bool:
    """Return whether a report's first place is that of the mutation; of an error, the weights without a counterpart."""
    if _tells_line(str(told["reason"]) + str(told["causes"]), mutant):
        return True
    relations = mutant["layers"]
    near = {*relations["within"], *relations["makes"], *relations["calls"]}
    near |= set(relations["before"]) if told["kind"] in GRADIENTS else set()
    near |= _attentions(told, relations["within"]) if "mask" in {mutant["kind"], *_made(mutant)} else set()
    around = {path.rpartition("/")[0] for path in near}
    places = [told["place"], *(str(cause["where"]) for cause in told["causes"][:1])]
    paths = {_layer(path) for place in places for path in (*told["layers"].get(place, []), *_outputs(place))}
    paths |= {change["path"] for cause in told["causes"][:1] for change in cause.get("changes", ()) if change["path"]}
    if told["verdict"] == "error":
        return has_unplaced(told, mutant, clean) or any(path and path in str(told["reason"]) for path in near)
    below = {path.rpartition("/")[0] for path in paths} - {""}
    whole = below if len(paths) > 1 and len(below) == 1 else set()  # what is around all weights of a module
    is_near = (paths | whole) & (near | around) or below & set(relations["calls"])
    return bool(is_near) or _is_inside(paths, relations["makes"])


def _attentions(told: Told, within: Iterable[str]) -> set[str]:
    """Return the attentions directly within some layers, which are given the masks that these make."""
    paths = {path for each in told["layers"].values() for path in each}
    return {path for path in paths if path.rpartition("/")[0] in within and "attention" in path.rpartition("/")[2]}


def _layer(path: str) -> str:
    """Return the path of a layer; the outputs of the model, "(model).image", are those of the whole model."""
    return "" if path.startswith("(model)") else path


def _outputs(place: str) -> list[str]:
    """Return the place itself if it is an output of the model: only such a place has the same name on both sides."""
    return [place] if place.startswith("(model)") else []


def _is_inside(paths: Iterable[str], layers: Iterable[str]) -> bool:
    return any(path.startswith(f"{layer}/") for path in paths for layer in layers if layer)


def has_unplaced(told: Told, mutant: Told, clean: Told) -> bool:
    """Return whether a weight without a counterpart is one of the mutated layers, or of one that the mutation adds."""
    relations, owners = mutant["layers"], clean["owners"]
    near = {*relations["within"], *relations["makes"], *relations["calls"]}
    known = {path for paths in owners.values() for path in paths}
    added = {name.rpartition("/")[0] for side, name in told["unplaced"] if side == "keras"}
    lost = {path for side, name in told["unplaced"] if side == "torch" for path in owners.get(name, [])}
    return bool((added | lost) & near or added - known) or _is_inside(added | lost, relations["makes"])


def is_named(told: Told, mutant: Told, clean: Told) -> bool:
    """Return whether a cause tells what was mutated; of an error, whether it lists the weights that are concerned."""
    if told["verdict"] == "error":
        words = _words(mutant["setting"]) & _words(str(told["reason"]))
        return bool(words) or has_unplaced(told, mutant, clean)
    return any(tells(cause, mutant) for cause in told["causes"] if cause["id"] not in UNNAMED)


def false_causes(told: Told, mutant: Told, clean: Told) -> list[Told]:
    """Return the named causes that tell nothing of what was mutated."""
    return [
        cause
        for cause in told["causes"]
        if cause["id"] not in UNNAMED and _key(cause) not in _keys(clean) and not tells(cause, mutant)
    ]


def tells(cause: Told, mutant: Told) -> bool:
    """Return whether a cause tells what was mutated."""
    name = str(cause["id"])
    last = name.rpartition(".")[2]
    words = _words(last) or _words(name)
    if name == "code.function":  # which tells a function's name as a value: max_pool2d of the setting max_pool
        words |= {word for side in ("torch", "keras") if cause[side] != LEFT_OUT for word in _words(str(cause[side]))}
    if words & (_words(mutant["setting"]) | _words(mutant["target"]) | _made(mutant)):
        return True
    if any(fnmatchcase(name, glob) for glob in _families(mutant)):
        return True
    is_zero = mutant["kind"] == operations.RESIDUAL and cause.get("keras") == 0  # as is a summand that is dropped
    if (is_zero or mutant["kind"] == operations.OPERATOR) and re.search(rf"\b_?{re.escape(last)}\b", mutant["before"]):
        return True  # of what is added, multiplied or compared
    return _tells_line(str(cause.get("evidence", "")), mutant) or _tells_values(cause, mutant)


def _made(mutant: Told) -> set[str]:
    """Return what the names of the mutated function and its class say that it makes, such as a mask."""
    return _words(mutant["function"]) & set(MADE)


def _families(mutant: Told) -> Iterable[str]:
    yield from FAMILIES.get(mutant["kind"], ())
    for words in arguments.ENUMERATIONS:
        if mutant["old"] in words:
            yield from WORDS.get(words[0], ())


def _tells_values(cause: Told, mutant: Told) -> bool:
    """Return whether a cause has the old value on torch's side and the new one on Keras's, or their ratio.

    Of a function that is dropped, its name and that it is left out. So is the first of two calls in the wrong order, if
    nothing takes what it returns.
    """
    sides = cause.get("torch"), cause.get("keras")
    if mutant["kind"] == operations.ORDER and sides[1] == LEFT_OUT:
        return bool(_words(str(sides[0])) & {word for path in mutant["layers"]["calls"] for word in _words(path)})
    if mutant["kind"] == operations.ACTIVATION and sides == (mutant["setting"], LEFT_OUT):
        return True
    values = mutant["old"], mutant["new"]
    if all(isinstance(each, str) for each in (*sides, *values)):
        return sides == values
    numbers = [_number(each) for each in (*sides, *values)]
    if any(each is None for each in numbers):
        return False
    torch, keras, old, new = (float(each) for each in numbers if each is not None)
    if math.isclose(torch, old, rel_tol=CLOSE) and math.isclose(keras, new, rel_tol=CLOSE):
        return True
    return all((torch, keras, old, new)) and any(
        math.isclose(keras / torch, ratio, rel_tol=CLOSE) for ratio in (new / old, old / new)
    )


def _number(value: Any) -> float | None:
    if isinstance(value, (int, float)):
        return float(value)
    try:
        return float(str(value))
    except ValueError:
        return None


def _tells_line(text: str, mutant: Told) -> bool:
    """Return whether a text has the file and one of the lines of the mutated statement."""
    file = re.escape(PurePath(mutant["file"]).name)
    lines = {int(number) for number in re.findall(rf"{file}:(\d+)", text)}
    return any(mutant["first"] <= line <= mutant["last"] for line in lines)


def _words(text: str) -> set[str]:
    """Return the words of a name, without those that say nothing, and without an s at their ends."""
    parts = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text).lower())
    return {SHORT.get(part, part.rstrip("s")) for part in parts if part not in MEANINGLESS and len(part) > 1}


def _key(cause: Told) -> tuple[str, str]:
    return str(cause["id"]), str(cause["where"])


def _keys(told: Told) -> set[tuple[str, str]]:
    return {_key(cause) for cause in told["causes"]}
