"""Mutations of what is computed: operators, order, summands, masks, casts, gradients, activations, reductions."""

from collections.abc import Iterator

import libcst as cst

from mutating.arguments import CAST
from mutating.code import Change, Code, called, expression

OPERATOR, ORDER, RESIDUAL, MASK = "operator", "order of two calls", "dropped summand", "mask"
STOPPED, ACTIVATION, REDUCTION = "stopped gradient", "dropped activation", "reduction"

OPERATORS: dict[type, type] = {
    cst.Add: cst.Subtract,
    cst.Subtract: cst.Add,
    cst.Multiply: cst.Add,
    cst.Divide: cst.Multiply,
    cst.Power: cst.Multiply,
}
COMPARISONS: dict[type, type] = {
    cst.LessThan: cst.LessThanEqual,
    cst.LessThanEqual: cst.LessThan,
    cst.GreaterThan: cst.GreaterThanEqual,
    cst.GreaterThanEqual: cst.GreaterThan,
    cst.Equal: cst.NotEqual,
}
FUNCTIONS = (
    "relu", "gelu", "silu", "swish", "tanh", "sigmoid", "softmax", "elu", "softplus", "exp", "sqrt", "square",
    "log_softmax", "relu6", "hard_swish", "leaky_relu", "rsqrt",
)  # fmt: skip
LAYERS = ("ReLU", "Activation", "LeakyReLU", "Softmax", "ELU", "GELU", "PReLU")
REDUCTIONS = {"mean": "sum", "sum": "mean", "max": "mean", "logsumexp": "max", "maximum": "minimum", "std": "var"}
SUMS = ("Add", "add")
OPERATIONS = (cst.BinaryOperation, cst.UnaryOperation, cst.BooleanOperation, cst.Comparison, cst.IfExp)
HALVES = ("float16", "bfloat16", "int32")


def changes(code: Code, node: cst.CSTNode) -> Iterator[Change]:
    """Yield the mutations of a node that computes something."""
    if isinstance(node, cst.BinaryOperation):
        yield from _operators(node)
        yield from _summands(node)
    elif isinstance(node, cst.Comparison):
        yield from _comparisons(node)
    elif isinstance(node, cst.Call):
        yield from _calls(code, node)
    elif isinstance(node, cst.Arg):
        yield from _masks(code, node)
    elif isinstance(node, cst.Assign):
        yield from _passing(code, node)
    elif isinstance(node, cst.IndentedBlock):
        yield from _statements(node)


def _operators(node: cst.BinaryOperation) -> Iterator[Change]:
    """Yield the operation with another operator; texts are no numbers."""
    texts = (cst.BaseString, cst.FormattedString)
    if (other := OPERATORS.get(type(node.operator))) and not isinstance(node.left, texts):
        names = type(node.operator).__name__, other.__name__
        yield Change(OPERATOR, names[0], node, _bracketed(node.with_changes(operator=other())), *names)


def _comparisons(node: cst.Comparison) -> Iterator[Change]:
    """Yield the comparison with another operator."""
    target = node.comparisons[0]
    if other := COMPARISONS.get(type(target.operator)):
        names = type(target.operator).__name__, other.__name__
        changed = node.with_changes(comparisons=[target.with_changes(operator=other()), *node.comparisons[1:]])
        yield Change(OPERATOR, names[0], node, changed, *names)


def _summands(node: cst.BinaryOperation) -> Iterator[Change]:
    """Yield each summand by itself, of a sum of what was computed: x + f(x) becomes f(x)."""
    computed = (cst.Name, cst.Attribute, cst.Call)
    if isinstance(node.operator, cst.Add) and all(isinstance(each, computed) for each in (node.left, node.right)):
        yield from (Change(RESIDUAL, "Add", node, each) for each in (node.left, node.right))


def _calls(code: Code, node: cst.Call) -> Iterator[Change]:
    name = called(node.func) or (called(node.func.func) if isinstance(node.func, cst.Call) else "")
    values = [arg.value for arg in node.args if arg.keyword is None and not arg.star]
    if name in SUMS:
        items = values[0].elements if len(values) == 1 and isinstance(values[0], (cst.List, cst.Tuple)) else []
        summands = [item.value for item in items] if items else values
        yield from (Change(RESIDUAL, name, node, _bracketed(each)) for each in summands if len(summands) == 2)
    if values and ((name in LAYERS and isinstance(node.func, cst.Call)) or _activates(node, name)):
        yield Change(ACTIVATION, name, node, _bracketed(values[0]))
    if name in REDUCTIONS and isinstance(node.func, cst.Attribute):
        other = node.func.with_changes(attr=cst.Name(REDUCTIONS[name]))
        yield Change(REDUCTION, name, node, node.with_changes(func=other), name, REDUCTIONS[name])
    if name == "where" and len(values) == 3:
        first, second, third = node.args[:3]
        exchanged = [first, second.with_changes(value=third.value), third.with_changes(value=second.value)]
        yield Change(MASK, name, node, node.with_changes(args=[*exchanged, *node.args[3:]]))
    inner = _only(node)
    if isinstance(inner, cst.Call) and _only(inner) is not None and code.text(node.func) != code.text(inner.func):
        within = inner.with_changes(func=node.func)
        outer = node.with_changes(func=inner.func, args=[node.args[0].with_changes(value=within)])
        yield Change(ORDER, called(node.func), node, outer)


def _activates(node: cst.Call, name: str) -> bool:
    """Return whether a call is that of an activation, by its name or that of the attribute that holds it."""
    is_held = isinstance(node.func, cst.Attribute) and "activation" in name
    return is_held or (isinstance(node.func, cst.Attribute) and name in FUNCTIONS)


def _only(call: cst.Call) -> cst.BaseExpression | None:
    """Return the only argument of a call; None if it has more, or a named one."""
    plain = len(call.args) == 1 and call.args[0].keyword is None and not call.args[0].star
    return call.args[0].value if plain else None


def _masks(code: Code, node: cst.Arg) -> Iterator[Change]:
    """Yield the argument with its mask inverted."""
    name = node.keyword.value if node.keyword else called(node.value)
    if "mask" in name and isinstance(node.value, (cst.Name, cst.Attribute, cst.Call)) and called(node.value) != "None":
        if isinstance(node.value, cst.Name) and node.value.value in ("True", "False"):
            return
        inverted = (
            'lambda m: None if m is None else keras.ops.cast(keras.ops.logical_not(keras.ops.cast(m, "bool")), m.dtype)'
        )
        yield Change(MASK, name, node.value, expression(f"({inverted})({code.text(node.value)})"))


def _passing(code: Code, node: cst.Assign) -> Iterator[Change]:
    """Yield the assigned value on its way through a smaller type, and with its gradient stopped."""
    function = code.function(node).rpartition(".")[2]
    is_code = function and function != "build" and not (function == "__init__" and code.class_has(node, "call"))
    target = node.targets[0].target
    if not is_code or not isinstance(target, cst.Name) or not isinstance(node.value, (cst.Call, cst.BinaryOperation)):
        return
    text = code.text(node.value)
    for half in HALVES:
        through = f'(lambda x: keras.ops.cast(keras.ops.cast(x, "{half}"), x.dtype))({text})'
        yield Change(CAST, half, node.value, expression(through), None, half)
    yield Change(STOPPED, "stop_gradient", node.value, expression(f"keras.ops.stop_gradient({text})"))


def _statements(block: cst.IndentedBlock) -> Iterator[Change]:
    """Yield the block with two statements exchanged that assign to the same name one after the other."""
    for number in range(len(block.body) - 1):
        first, second = block.body[number : number + 2]
        if (name := _assigned(first)) and name == _assigned(second):
            body = [*block.body[:number], second, first, *block.body[number + 2 :]]
            yield Change(ORDER, name, block, block.with_changes(body=body), at=first)


def _assigned(statement: cst.CSTNode) -> str:
    """Return the name that a statement assigns the result of a call to; "" if it does something else."""
    if not isinstance(statement, cst.SimpleStatementLine) or not isinstance(statement.body[0], cst.Assign):
        return ""
    target, value = statement.body[0].targets[0].target, statement.body[0].value
    return target.value if isinstance(target, cst.Name) and isinstance(value, cst.Call) else ""


def _bracketed(node: cst.BaseExpression) -> cst.BaseExpression:
    """Return an expression that can stand anywhere: one with operators gets parentheses."""
    if not isinstance(node, OPERATIONS) or node.lpar:
        return node
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
