"""What two modules do differently, in plain words, where no argument explains it.

Both answered the same probes. What is told has evidence on both sides: the curve of modules that act on each element
alone, properties that one side has and the other has not, and relations between the outputs that hold for all probes.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from parity.core.arrays import Array
from parity.diagnose.experiment import curve_words, probes
from parity.diagnose.experiment.curve_words import LONG, SHORT, number
from parity.diagnose.experiment.probes import Responses
from parity.diagnose.experiment.properties import CHANGED, MIXES, NOT_LINEAR, alone_words, near, properties
from parity.diagnose.experiment.relations import relation

ALONE: Final = "acts on each element alone"
MOST: Final = 2  # common properties that are told


def describe(torch: Responses, keras: Responses) -> str:
    """Return what tells the two sides apart, and what they have in common that helps to see it."""
    if curve := _curves(torch, keras):
        return f"both act on each element alone; {curve}"
    common, differing = _properties(torch, keras)
    if related := relation(torch, keras):
        return "; ".join([*common, related])
    return "; ".join(differing or [*common, *_extent(torch, keras)])


def _properties(torch: Responses, keras: Responses) -> tuple[list[str], list[str]]:
    """Return what both sides have in common, and the properties in which they differ."""
    common, differing = [], []
    for property_ in properties(torch.inputs):
        one, other = property_.words(torch), property_.words(keras)
        if one and other and one != other:
            differing.append(f"torch {one}, keras {other}")
        elif one and other and property_.context and one not in (MIXES, NOT_LINEAR):
            common.append(f"each side {one}")
    return common[:MOST], differing


def _curves(torch: Responses, keras: Responses) -> str:
    """Return what tells the curves apart if both sides act on each element alone, and alike on all of them."""
    if not alone_words(torch) == alone_words(keras) == ALONE:
        return ""
    one, other = _curve(torch), _curve(keras)
    if one is None or other is None:
        return ""
    return curve_words.difference(_points(torch), one, other)


def _points(table: Responses) -> Array:
    return probes.grid(table.inputs[probes.varied(table.inputs) or 0].size)


def _curve(table: Responses) -> Array | None:
    """Return the curve's values at the points; None if a probe of it was refused."""
    parts = [output.reshape(-1) for name, output in table.outputs.items() if name.startswith("curve ")]
    values = np.concatenate(parts) if parts else np.zeros(0)
    return values if values.size == _points(table).size else None


def _extent(torch: Responses, keras: Responses) -> Iterator[str]:
    """Yield how much of the output differs, on the input of the pair's run or, if that agrees, on the first probe."""
    shared = [name for name in torch.outputs if name in keras.outputs]
    if not shared:
        yield "one side refuses each chosen input that the other accepts"
        return
    for name in shared:
        one, other = torch.outputs[name], keras.outputs[name]
        if one.shape != other.shape:
            yield f"torch returns the shape {list(one.shape)}, keras returns the shape {list(other.shape)}"
            return
        if not near(one, other, CHANGED):
            yield f"for {_input(name)} {_share(one, other)}"
            return
    yield f"both answer all {len(shared)} chosen inputs alike, so that the call itself must differ"


def _input(name: str) -> str:
    return "the input of this run" if name == "given" else f"a chosen input ({name})"


def _share(one: Array, other: Array) -> str:
    with np.errstate(invalid="ignore"):
        distance = np.where((one == other) | (np.isnan(one) & np.isnan(other)), 0.0, np.abs(one - other))
    distance = np.nan_to_num(distance, nan=np.inf)
    most = np.unravel_index(int(np.argmax(distance)), one.shape)
    count = np.count_nonzero(distance > CHANGED * np.abs(one[np.isfinite(one)]).max(initial=0.0))
    at = f" at [{', '.join(map(str, most))}]" if most else ""
    digits = (SHORT, LONG)[number(float(one[most])) == number(float(other[most]))]
    here, there = (number(float(array[most]), digits) for array in (one, other))
    return f"{count} of {one.size} outputs differ, most{at}: torch gives {here}, keras {there}"
