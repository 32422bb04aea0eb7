"""Knobs: the settings of a live module that can be changed for one call, wherever its code keeps them.

A knob is an attribute of the module or of a layer in it, a constant in the code that the call runs through, the default
of an argument, a global constant, or the name of a function that the code calls. Each is changed in the running
process, never in a file, and is put back after the call.
"""

import enum
import inspect
import itertools
import operator
import re
import types
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

from parity.core.groups import grouped
from parity.core.patches import applied, setting

FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
QUOTED = re.compile(r"""["'`]([A-Za-z_]\w{0,23})["'`]""")  # in a docstring
WORD = re.compile(r"[A-Za-z_]\w{0,23}")
NEAR = 2  # lines: those of a statement, and its neighbours
# What a mask can be.
AS_GIVEN, INVERTED, LEFT_OUT, THEIRS = "as given", "inverted", "left out", "the other side's"
SLICES, DENSE = "IndexedSlices", "dense"  # TensorFlow's gradient of an embedding, and what else it can be
BESIDE = ("_self_", "lora_")  # how names begin of what TensorFlow and Keras keep in each layer, beside its settings
MOST_EXCHANGES = 6  # pairs of modules of a class
MOST_SIBLINGS = 3  # values that other modules of a class have
FEW = 8  # entries of a tuple that is a setting, such as a padding; longer ones are data
Changed = Callable[[Any], AbstractContextManager[None]]


class Owner(NamedTuple):
    """A module that has settings, with its path and its kind; `sizes` are those of its own weights' axes."""

    path: str
    kind: str
    module: Any
    sizes: Collection[int] = ()


class Knob(NamedTuple):
    """A setting that can be changed."""

    name: str  # what the user calls it: an argument's or attribute's name, or a constant as it is written
    owner: str  # the class or function that has it
    source: str  # "file:line" of the user's code where it stands, "" where that is not known
    value: Any  # its present value
    kind: str  # where it was found
    changed: Changed  # a context manager within which it has another value
    words: tuple[str, ...] = ()  # texts that its class compares settings with, or the only ones to try
    of: str = ""  # the kind of the module that has it, "" where it is in the code
    path: str = ""  # the path of that module
    is_size: bool = False  # whether it may be the size of a weight, which is the same on both sides
    # What it is where the class is made without the argument of its name; none if it has no such argument.
    defaults: tuple[Any, ...] = ()


def is_setting(value: Any) -> bool:
    """Return whether a value is a setting that can be changed: a scalar, an enum's member, None, or a short tuple."""
    if isinstance(value, (list, tuple)):
        return 0 < len(value) <= FEW and all(map(is_setting, value))
    return value is None or isinstance(value, (bool, int, float, str, enum.Enum))


def attributes(owner: Owner, read: Collection[str], base: type) -> Iterator[Knob]:
    """Yield the settings and functions that a module holds, beside those of the framework's `base` of all modules.

    `read`: the names that the code which was run refers to; attributes of other names cannot matter.
    """
    own, kind = vars(owner.module), type(owner.module)
    usual, class_words = {*dir(base), *getattr(base(), "__dict__", {})}, tuple(_class_words(kind, base))
    for name in [name for name in own if name in read and name not in usual and not name.startswith(BESIDE)]:
        value = own[name]
        if is_setting(value) or isinstance(value, FUNCTIONS):
            yield named(own, name, owner)._replace(
                name=name.lstrip("_"),
                kind="callable" if isinstance(value, FUNCTIONS) else "attribute",
                words=class_words,
                is_size=type(value) is int and value in owner.sizes,
                defaults=_default(kind, name),
            )


def _default(kind: type, name: str) -> tuple[Any, ...]:
    """Return the default of the argument of that name with which a class is made, if it is a setting."""
    try:
        argument = inspect.signature(kind).parameters.get(name)
    except (TypeError, ValueError):  # a class of a C extension tells no signature
        return ()
    return (argument.default,) if argument and is_setting(argument.default) else ()


def configured(owner: Owner) -> Iterator[float]:
    """Yield the numbers with a point in the dicts and configurations that a module holds: it may be built by them."""
    held = [
        value if isinstance(value, dict) else getattr(value, "__dict__", {})
        for value in vars(owner.module).values()
        if isinstance(value, dict) or "config" in type(value).__name__.lower()
    ]
    seen: set[int] = set()
    while held:
        entries = held.pop()
        if id(entries) not in seen:
            seen.add(id(entries))
            yield from (value for value in entries.values() if isinstance(value, float))
            held += [value for value in entries.values() if isinstance(value, dict)]


def arguments(given: dict[str, Any], owner: Owner) -> Iterator[Knob]:
    """Yield the arguments of a module's call that are settings."""
    yield from (named(given, name, owner) for name, value in given.items() if is_setting(value))


def named(held: dict[str, Any], name: str, owner: Owner) -> Knob:
    """Return an argument of a module's call, which takes its arguments from `held`, or an attribute as a setting."""
    change, kind = assignment(held, name), type(owner.module).__name__
    return Knob(name, kind, "", held[name], "argument", change, of=owner.kind, path=owner.path)


def tensors(given: dict[str, Any], owner: Owner) -> Iterator[Knob]:
    """Yield the float tensors among the arguments of a call, each of which can be what another of its shape is."""
    floats = {name: value for name, value in given.items() if "float" in str(getattr(value, "dtype", ""))}
    for name, value in floats.items():
        alike = {
            f"that of {argument}": tensor
            for argument, tensor in floats.items()
            if tensor is not value and tuple(tensor.shape) == tuple(value.shape)
        }
        if alike:
            knob = named(given, name, owner)
            yield knob._replace(value=AS_GIVEN, changed=one_of(knob.changed, alike), words=tuple(alike))


def one_of(change: Changed, values: Mapping[str, Any]) -> Changed:
    """Return the change to one of some values, by the text that tells it."""
    return lambda text: change(values[text])


def is_near(source: str, lines: Iterable[str]) -> bool:
    """Return whether a line ("file:line", or "") is near one of some others, whose file may be the end of a path."""
    file, _, at = source.rpartition(":")
    named = [line.rpartition(":") for line in lines]
    return any(file.endswith(name) and abs(int(at) - int(number)) <= NEAR for name, _, number in named if file)


def place(knob: Knob) -> tuple[str, ...]:
    """Return what tells a setting from others of the model."""
    return knob.name, knob.owner, knob.source, knob.kind, knob.path


def joint(found: Iterable[Knob]) -> Iterator[Knob]:
    """Yield, for attributes that several modules of one class have alike, the change of all of them at once."""
    for several in alike(found):
        yield several[0]._replace(owner=f"{several[0].owner} ({len(several)} of them)", changed=together(several))


def alike(found: Iterable[Knob]) -> list[list[Knob]]:
    """Return the attributes that several modules of one class have alike, together."""
    of_modules = (knob for knob in found if knob.of)
    by_name = grouped(of_modules, lambda knob: (knob.owner, knob.of, knob.name, knob.kind, repr(knob.value)))
    return [several for several in by_name.values() if len(several) > 1]


def exchanges(knobs: Iterable[Knob]) -> Iterator[Knob]:
    """Yield the exchange of an attribute in which two modules of a class differ: either value alone may fit nothing."""
    of_modules = (knob for knob in knobs if knob.of and knob.kind == "attribute" and not knob.is_size)
    for several in grouped(of_modules, lambda knob: (knob.owner, knob.of, knob.name)).values():
        for pair in itertools.islice(itertools.combinations(several, 2), MOST_EXCHANGES):
            values = [knob.value for knob in pair]
            before, after = (" and ".join(map(str, each)) for each in (values, values[::-1]))
            if before != after:
                trials = {before: [*zip(pair, values, strict=True)], after: [*zip(pair, values[::-1], strict=True)]}
                owner = f"{pair[0].owner} ({pair[0].path} and {pair[1].path})"
                change = one_of(lambda both: applied(knob.changed(value) for knob, value in both), trials)
                yield pair[0]._replace(owner=owner, value=before, kind="operation", changed=change, words=(after,))


def of_siblings(knob: Knob, among: Iterable[Knob]) -> list[Any]:
    """Return what other modules of the class have for an attribute, the usual value first: one of many may be wrong."""
    own = knob.owner.partition(" (")[0], knob.of, knob.name, knob.kind  # also of several that are changed together
    is_of_module = bool(knob.of) and knob.kind == "attribute" and not knob.is_size
    alike = [each for each in among if is_of_module and (each.owner, each.of, each.name, each.kind) == own]
    values = [each.value for each in alike if repr(each.value) != repr(knob.value)]
    usual = Counter(map(repr, values)).most_common(MOST_SIBLINGS)
    return [next(value for value in values if repr(value) == text) for text, _ in usual]


def widened(trial: tuple[Knob, Any], among: Iterable[Knob]) -> tuple[Knob, Any]:
    """Return the change of one module's setting as that of all modules of its kind, as it is where there is none."""
    knob, value = trial
    all_of_them = re.compile(rf"{re.escape(knob.owner)} \(\d+ of them\)")
    kind = knob.of, knob.name, knob.kind
    alike = [each for each in among if (each.of, each.name, each.kind) == kind and all_of_them.fullmatch(each.owner)]
    alike.sort(key=lambda each: each.source == knob.source)
    return (alike[-1], value) if alike else trial


def together(several: Sequence[Knob]) -> Changed:
    """Return the change of several settings to one value."""
    return lambda value: applied(knob.changed(value) for knob in several)


def words(code: types.CodeType) -> Iterator[str]:
    """Yield the words among the constants of a function's code."""
    several = (value if isinstance(value, (tuple, frozenset)) else (value,) for value in code.co_consts)
    return (entry for values in several for entry in values if isinstance(entry, str) and WORD.fullmatch(entry))


def _class_words(kind: type, base: type) -> Iterator[str]:
    """Yield the words in a class's methods and documentation, among them those that it accepts for its settings."""
    for own in kind.__mro__:
        if own in base.__mro__:
            return
        yield from QUOTED.findall(own.__doc__ or "")
        for method in vars(own).values():
            if isinstance(method, types.FunctionType):
                yield from words(method.__code__)


def attribute(
    of: Any,
    name: str,
    replaced: Callable[[Any, Any], Any] = lambda before, value: value,
    read: Callable[[Any, str], Any] = getattr,
    write: Callable[[Any, str, Any], None] = setattr,
) -> Changed:
    """Return the change of an attribute; `replaced` makes what it is then of what it was and of the value to try."""

    def changed(value: Any) -> AbstractContextManager[None]:
        before = read(of, name)
        return setting(lambda: before, partial(write, of, name), replaced(before, value))

    return changed


def assignment(names: dict[str, Any], name: str) -> Changed:
    """Return the change of what a name stands for in a dict, such as an object's attributes or a file's globals."""
    return attribute(names, name, read=operator.getitem, write=operator.setitem)
