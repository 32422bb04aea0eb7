"""The high run is high everywhere: what a model computes in float32 on purpose is float64 in it.

Norms, softmax, rotary tables and losses often hold such islands. Within `lifted` every function of torch that is
asked for float32 (`.to`, `.float`, `dtype=`) gives float64, complex64 becomes complex128, and what comes from NumPy
in float32 is widened. Half precision that a model asks for stays as it is.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.autograd.function import BackwardCFunction
from torch.nn.modules import module as calls
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from parity.core.names import MODEL

WIDER = {torch.float32: torch.float64, torch.complex64: torch.complex128}
TYPES = {"torch.FloatTensor": torch.float64, "torch.cuda.FloatTensor": torch.float64}
ASKING = {"float": torch.float64, "cfloat": torch.complex128}  # methods that name their dtype by themselves
# float32 is not what these make: they read the same bits otherwise, or tell something of dtypes.
BITS = {"view", "can_cast", "promote_types", "result_type"}
BUILDING = "build"


@contextmanager
def lifted(at: str) -> Iterator[list[str]]:
    """At float64, no float32 within the block; the list of what was lifted, once each: "norm: .to(float32)"."""
    places: list[str] = []
    with _lifting(places) if at == "float64" else nullcontext():
        yield places


def widened(model: nn.Module, at: str) -> list[str]:
    """Make parameters and buffers as wide as the run; what was not, at float64."""
    wanted = torch.float64 if at == "float64" else torch.float32
    held: dict[torch.dtype, list[str]] = {}
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if (dtype := _wider(tensor.dtype, wanted)) != tensor.dtype:
                held.setdefault(tensor.dtype, []).append(name)
                tensor.data = tensor.data.to(dtype)
    return [_held(*one) for one in held.items()] if at == "float64" else []


def _held(dtype: torch.dtype, names: list[str]) -> str:
    others = f" and {len(names) - 1} others" if len(names) > 1 else ""
    return f"{names[0]}{others}: held in {_text(dtype)}"


def _wider(dtype: torch.dtype, wanted: torch.dtype) -> torch.dtype:
    if not dtype.is_floating_point:
        return WIDER.get(dtype, dtype) if wanted == torch.float64 else dtype
    return wanted if dtype.itemsize < wanted.itemsize else dtype


@contextmanager
def _lifting(places: list[str]) -> Iterator[None]:
    """The mode; what no mode sees; and the user's code in the backward pass, where autograd leaves modes behind."""
    stack: list[nn.Module] = []
    again: list[bool] = []  # of the modules of the stack: whether the call has entered the mode
    known: set[tuple[int, str]] = set()

    def note(what: str) -> None:
        if (place := (id(stack[-1]) if stack else 0, what)) not in known:
            known.add(place)
            places.append(f"{_path(stack)}: {what}")

    mode = _Lifting(note)

    def on_call(module: nn.Module, *_: Any) -> None:
        stack.append(module)
        again.append(_in_backward() and not any(again))
        if again[-1]:
            mode.__enter__()

    def on_return(*_: Any) -> None:
        stack.pop()
        if again.pop():
            mode.__exit__(None, None, None)

    backward = BackwardCFunction.apply

    def applied(self: BackwardCFunction, *args: Any) -> Any:
        with mode:
            return backward(self, *args)

    with ExitStack() as open_:
        open_.callback(calls.register_module_forward_pre_hook(on_call).remove)
        open_.callback(calls.register_module_forward_hook(on_return, always_call=True).remove)
        for name, replaced in _unseen(note).items():
            open_.enter_context(mock.patch.object(torch, name, replaced))
        open_.enter_context(mock.patch.object(BackwardCFunction, "apply", applied))
        open_.enter_context(mode)
        yield


def _in_backward() -> bool:
    """Then a checkpoint calls modules again."""
    return torch._C._current_graph_task_id() != -1


def _unseen(note: Callable[[str], None]) -> dict[str, Callable[..., Any]]:
    """Functions of torch that are no functions of tensors, and do the same in float64."""
    default = torch.set_default_dtype

    def set_default_dtype(d: torch.dtype) -> None:
        if d == torch.float32:
            note("torch.set_default_dtype(float32)")
        default(WIDER.get(d, d))

    def from_array(name: str, function: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> torch.Tensor:
        made = function(*args, **kwargs)
        if made.dtype not in WIDER:
            return made
        note(f"torch.{name}, of values that stay rounded to {_text(made.dtype)}")
        return made.to(WIDER[made.dtype])

    makers = {name: getattr(torch, name) for name in ("from_numpy", "frombuffer", "from_dlpack")}
    made = {name: functools.partial(from_array, name, maker) for name, maker in makers.items()}
    return {"set_default_dtype": set_default_dtype, **made}


class _Lifting(TorchFunctionMode):
    """Every function of torch that a model calls. `note` is told what is lifted."""

    def __init__(self, note: Callable[[str], None]):
        super().__init__()
        self.note = note

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", str(func))
        if name in ASKING:
            self.note(f".{name}()")
            return args[0].to(ASKING[name], **kwargs)
        asked = [leaf for leaf in _flat(args, kwargs) if _wanted(leaf)] if name not in BITS else []
        if asked:
            self.note(f"{_function(func, name)}({', '.join(dict.fromkeys(map(_text, asked)))})")
            args, kwargs = tree_map(_lift, (args, kwargs))
        return self._result(func, name, func(*args, **kwargs), args, kwargs)

    def _result(self, func: Any, name: str, made: Any, args: tuple, kwargs: dict) -> Any:
        """Widened if it is float32 that nothing of what went in was, as where NumPy's values come in."""
        if not isinstance(made, torch.Tensor) or made.dtype not in WIDER or _inherited(args, kwargs):
            return made
        self.note(f"{_function(func, name)}, of values that stay rounded to {_text(made.dtype)}")
        return made.to(WIDER[made.dtype])


def _flat(args: tuple, kwargs: dict) -> Iterator[Any]:
    """Arguments, and what is within tuples, lists and dicts among them."""
    for argument in (*args, *kwargs.values()):
        if isinstance(argument, (tuple, list, dict)):
            yield from tree_leaves(argument)
        else:
            yield argument


def _wanted(argument: Any) -> bool:
    """Whether an argument asks for float32."""
    if isinstance(argument, str):
        return argument in TYPES
    return (isinstance(argument, torch.dtype) and argument in WIDER) or argument is torch.FloatTensor


def _lift(argument: Any) -> Any:
    if not _wanted(argument):
        return argument
    return WIDER[argument] if isinstance(argument, torch.dtype) else torch.float64


def _inherited(args: tuple, kwargs: dict) -> bool:
    return any(isinstance(leaf, torch.Tensor) and leaf.dtype in WIDER for leaf in _flat(args, kwargs))


def _function(func: Any, name: str) -> str:
    """As the user writes it: .to of a tensor's methods, else torch.zeros."""
    return f".{name}" if getattr(torch.Tensor, name, None) is func else f"torch.{name}"


def _text(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.") if isinstance(dtype, torch.dtype) else "FloatTensor"


def _path(stack: list[nn.Module]) -> str:
    """The innermost module that is being called, as it is named in the outermost."""
    if not stack:
        return BUILDING
    named = (name for name, module in stack[0].named_modules() if module is stack[-1])
    return next(named, type(stack[-1]).__name__) or MODEL
