"""In which structure a model gets several inputs as one argument: a dict by their names, or a tuple in their order.

A model may take both in one argument, and what it does with it stands in its source alone: `x, t = inputs` and
`inputs[0]` need a tuple, `inputs["x"]` needs a dict.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

PART = "[..., "  # in a name, before the number of a part
OF_DICTS = ("get", "items", "keys", "pop", "setdefault", "values")
OF_SEQUENCES = ("enumerate", "list", "map", "reversed", "tuple", "zip")


def wholes(named: Mapping[str, Any], stack: Callable[[list[Any], int], Any]) -> dict[str, Any]:
    """Return tensors by name, with one in place of those whose names tell that they are parts of its last axis.

    `{"x[..., 0]": a, "x[..., 1]": b}` becomes `{"x": stack([a, b], -1)}`.
    """
    parts: dict[str, list[Any]] = {}
    for name, value in sorted(named.items(), key=lambda item: int(item[0].partition(PART)[2].removesuffix("]") or 0)):
        parts.setdefault(name.partition(PART)[0], []).append(value)
    order = dict.fromkeys(name.partition(PART)[0] for name in named)
    return {name: stack(parts[name], -1) if f"{name}{PART}0]" in named else named[name] for name in order}


def nested(named: Mapping[str, Any]) -> dict[str, Any]:
    """Turn dotted names into nested dicts, and those whose keys are numbers into tuples.

    `{"person.age": a, "person.sex": b}` becomes `{"person": {"age": a, "sex": b}}`, and `{"pair.0": a, "pair.1": b}`
    becomes `{"pair": (a, b)}`.
    """
    tree: dict[str, Any] = {}
    for name, value in named.items():
        *folders, last = name.split(".")
        branch = tree
        for folder in folders:
            branch = branch.setdefault(folder, {})
        branch[last] = value
    return {name: _numbered(value) for name, value in tree.items()}


def as_taken(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments, each dict as a tuple of its values where the function takes the argument apart as one."""
    parameters = inspect.signature(function).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL]

    def taken(name: str, value: Any) -> Any:
        return tuple(value.values()) if isinstance(value, dict) and _is_sequence(function, name, ()) else value

    placed = [taken(name, value) for name, value in zip(names, args, strict=False)]
    return [*placed, *args[len(placed) :]], {name: taken(name, value) for name, value in kwargs.items()}


def _numbered(value: Any) -> Any:
    """Return a nest of dicts, those whose keys are numbers as tuples in the order of the numbers."""
    if not isinstance(value, dict):
        return value
    inner = {key: _numbered(entry) for key, entry in value.items()}
    if not all(key.isdecimal() for key in inner):
        return inner
    return tuple(inner[key] for key in sorted(inner, key=int))


def _is_sequence(function: Callable[..., Any], parameter: str, known: tuple[Any, ...]) -> bool:
    """Return whether the first use of a parameter that tells is one of a sequence; `known`: functions looked at."""
    function = inspect.unwrap(function)
    code = getattr(function, "__func__", function)
    if code in known:
        return False
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError):  # no source, or a lambda within another line
        return False
    _name_indices(tree)
    uses = (_use(node, parameter, function, (*known, code)) for node in _in_order(tree))  # until one tells
    return next((use for use in uses if use is not None), False)


def _name_indices(tree: ast.AST) -> None:
    """Replace an index that is one of several constants, as in `inputs[k] for k in ("x", "t")`, by the first."""
    nodes = list(ast.walk(tree))
    constants: dict[str, ast.expr] = {}
    for loop in (node for node in nodes if isinstance(node, (ast.For, ast.comprehension))):
        match loop.target, loop.iter:
            case ast.Name(id=name), ast.Tuple(elts=[first, *_]) | ast.List(elts=[first, *_]):
                constants[name] = first
            case ast.Name(id=name), ast.Call(func=ast.Name(id="range")):
                constants[name] = ast.Constant(0)
    for node in nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name):
            node.slice = constants.get(node.slice.id, node.slice)


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all nodes in it in the order of the source."""
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)


def _use(node: ast.AST, parameter: str, function: Callable[..., Any], known: tuple[Any, ...]) -> bool | None:
    """Return whether a node uses the parameter as a sequence (True), as a dict (False), or tells nothing (None)."""

    def is_it(value: ast.AST | None) -> bool:
        return isinstance(value, ast.Name) and value.id == parameter

    match node:
        case ast.Assign(targets=[ast.Tuple() | ast.List()], value=value) if is_it(value):
            return True
        case ast.For(iter=value) | ast.comprehension(iter=value) | ast.Starred(value=value) if is_it(value):
            return True
        case ast.Subscript(value=value, slice=ast.Name()) if is_it(value):
            return None
        case ast.Subscript(value=value, slice=index) if is_it(value):
            return not (isinstance(index, ast.Constant) and isinstance(index.value, str))
        case ast.Attribute(value=value, attr=attribute) if is_it(value):
            return False if attribute in OF_DICTS else None
        case ast.keyword(arg=None, value=value) if is_it(value):
            return False
        case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[value]) if is_it(value):
            return False
        case ast.Call(func=called, args=arguments):
            places = [place for place, argument in enumerate(arguments) if is_it(argument)]
            return _passed_on(called, places[0], function, known) if places else None
    return None


def _passed_on(called: ast.expr, place: int, function: Callable[..., Any], known: tuple[Any, ...]) -> bool | None:
    """Return how what is called with the parameter uses it.

    That is a method of the same model, or a function of a module, such as torch.cat: none of these takes a dict.
    """
    if isinstance(called, ast.Name):
        return True if called.id in OF_SEQUENCES else None
    *owners, name = ast.unparse(called).split(".")
    if owners and isinstance(getattr(function, "__globals__", {}).get(owners[0]), ModuleType):
        return True
    method = getattr(getattr(function, "__self__", None), name, None)
    if len(owners) != 1 or not inspect.ismethod(method):
        return None
    parameters = list(inspect.signature(method).parameters)
    return _is_sequence(method, parameters[place], known) if place < len(parameters) else None
