"""The precision of a run: the dtype of its parameters, torch.autocast, and in the high run promotion to float64.

In the high run, what a model computes in float32 on purpose is computed in float64. Norms, softmax, rotary tables and
losses often contain such float32 islands. Within `promoted`, every torch function that is asked for float32 (`.to`,
`.float`, `dtype=`) gives float64, complex64 becomes complex128, and float32 arrays from NumPy are converted. Autocast
and loss scaling, a precision of a program's runs, are switched off. Other half precision that a model asks for is left
as it is.
"""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.autograd.function import BackwardCFunction
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from parity.core.patches import applied, around, setting
from parity.trace.keys import MODEL, STAY_ROUNDED
from torch_impl.record import calls, lowered, tree

# Compute float32 in full: TF32 keeps 10 of its 23 bits, and torch uses it for convolutions on GPUs by default.
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
MIXED = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def policy(at: str) -> AbstractContextManager[None]:
    """Return a context in which new float tensors, and so new models, are float64 or float32."""
    dtype = torch.float64 if at == "float64" else torch.float32
    return setting(torch.get_default_dtype, lambda dtype: torch.set_default_dtype(dtype), dtype)


def autocast(at: str, device: str) -> torch.autocast:
    """Return autocast's context for forward pass and loss, without backward; off unless `at` is a half precision."""
    return torch.autocast(device, dtype=MIXED.get(at), enabled=at in MIXED)


def cast(model: nn.Module, at: str, device: str) -> None:
    """Make the model's forward, and those of its blocks, run under autocast."""
    if at not in MIXED:
        return
    plain, mixed = type(model), autocast(at, device)

    def blocks(self: nn.Module) -> list:
        return [block._replace(forward=mixed(block.forward)) for block in plain.blocks(self)]

    # Patch the class, not the object, so that nn.DataParallel's copies have it too.
    model.__class__ = type(plain.__name__, (plain,), {"forward": mixed(plain.forward), "blocks": blocks})


WIDER = {torch.float32: torch.float64, torch.complex64: torch.complex128}
TYPES = {"torch.FloatTensor": torch.float64, "torch.cuda.FloatTensor": torch.float64}
ASKING = {"float": torch.float64, "cfloat": torch.complex128}  # methods whose names are dtypes
# These do not produce float32: they reinterpret bits, or answer questions about dtypes.
BITS = {"view", "can_cast", "promote_types", "result_type"}
OPTIMIZERS = "torch.optim."  # its modules count steps in float32, as which fused kernels read them
BUILDING = "build"
COMPILED = "CompiledFunctionBackward"


@contextmanager
def promoted(at: str) -> Iterator[list[str]]:
    """Replace float32 by float64 in the block, if `at` is float64; the list that it yields gets each promotion once.

    Else a program that makes float64 its default has float32, so that it has a low run as well.
    """
    promotions: list[str] = []
    with _promoting(promotions) if at == "float64" else lowered.defaults():
        yield promotions


def promote_graph(graph: torch.fx.GraphModule, promotions: list[str]) -> None:
    """Replace float32 by float64 in what a graph asks for, as the mode does where no compiler traces; note it once."""
    for part in graph.modules():
        for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
            if node.op == "call_method" and node.target in ASKING:
                node.target, node.args = "to", (node.args[0], ASKING[node.target])
            elif node.op in ("call_function", "call_method") and any(map(_wanted, _flat(node.args, node.kwargs))):
                node.args, node.kwargs = tree_map(_promoted_argument, (node.args, node.kwargs))
            else:
                continue
            if (note := f"{MODEL}: compiled {node.name}") not in promotions:
                promotions.append(note)
        if isinstance(part, torch.fx.GraphModule):
            part.recompile()


def promote_weights(model: nn.Module, at: str) -> list[str]:
    """Convert narrower weights to float32, or to float64 if `at` is that; return the latter conversions, by dtype.

    A model of which all weights are float64 has them in float32 otherwise.
    """
    wanted = torch.float64 if at == "float64" else torch.float32
    held: dict[torch.dtype, list[str]] = {}
    is_wide = all(each.dtype == torch.float64 for each in model.parameters())
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            dtype = wanted if is_wide and tensor.dtype == torch.float64 else _wider(tensor.dtype, wanted)
            if dtype != tensor.dtype:
                held.setdefault(tensor.dtype, []).append(name)
                tensor.data = tensor.data.to(dtype)
    more = {dtype: f" and {len(names) - 1} more" if len(names) > 1 else "" for dtype, names in held.items()}
    noted = [f"{names[0]}{more[dtype]}: held in {_text(dtype)}" for dtype, names in held.items()]
    return noted if at == "float64" else []


def _wider(dtype: torch.dtype, wanted: torch.dtype) -> torch.dtype:
    if not dtype.is_floating_point:
        return WIDER.get(dtype, dtype) if wanted == torch.float64 else dtype
    return wanted if dtype.itemsize < wanted.itemsize else dtype


@contextmanager
def _promoting(promotions: list[str]) -> Iterator[None]:
    """Promote everywhere: under the function mode, in functions that no mode sees, and in the backward pass.

    Autograd runs user code of the backward pass (custom functions, checkpointed modules) outside of all modes, so the
    mode is entered there again.
    """
    entered_mode: list[bool] = []  # for each module that is being called: whether its call has entered the mode
    seen: set[tuple[int, str]] = set()

    def note(what: str) -> None:
        running = calls.running()
        if (site := (id(running[-1]) if running else 0, what)) not in seen:
            seen.add(site)
            promotions.append(f"{_path(running)}: {what}")

    mode = _PromotionMode(note)

    def on_call() -> None:
        entered_mode.append(calls.is_backward() and not any(entered_mode))
        if entered_mode[-1]:
            mode.__enter__()

    def on_return() -> None:
        if entered_mode.pop():
            mode.__exit__(None, None, None)

    def backward(apply: Callable[..., Any], *args: Any) -> Any:
        if type(args[0]).__name__ == COMPILED:  # a graph of torch.compile's, which was promoted before it was compiled
            return apply(*args)
        with mode:
            return apply(*args)

    patched = applied(_unseen(note)), around(BackwardCFunction, "apply", backward)
    with calls.tracked(on_call, on_return), applied(patched), mode:
        yield


def _unseen(note: Callable[[str], None]) -> Iterator[AbstractContextManager]:
    """Yield patches of torch functions that a TorchFunctionMode does not see."""

    def set_default_dtype(default: Callable[[torch.dtype], None], d: torch.dtype) -> None:
        if d == torch.float32:
            note("torch.set_default_dtype(float32)")
        default(WIDER.get(d, d))

    def from_array(name: str, function: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> torch.Tensor:
        with torch._C.DisableTorchFunction():  # a file's tensor is made in its own dtype
            tensor = function(*args, **kwargs)
        if tensor.dtype not in WIDER:
            return tensor
        note(f"torch.{name}, {STAY_ROUNDED} {_text(tensor.dtype)}")
        return tensor.to(WIDER[tensor.dtype])

    def enter(enter: Callable[[torch.autocast], Any], context: torch.autocast) -> Any:
        if context._enabled:
            note(f"torch.autocast({_text(context.fast_dtype)})")
        with mock.patch.object(context, "_enabled", False):
            return enter(context)

    def begin_scaler(init: Callable[..., None], scaler: torch.amp.GradScaler, *args: Any, **kwargs: Any) -> None:
        init(scaler, *args, **kwargs)
        scaler._enabled = False

    yield around(torch, "set_default_dtype", set_default_dtype)
    yield around(torch.autocast, "__enter__", enter)
    yield around(torch.amp.GradScaler, "__init__", begin_scaler)
    for name in ("from_numpy", "frombuffer", "from_dlpack"):
        yield around(torch, name, functools.partial(from_array, name))
    yield around(torch._utils, "_rebuild_tensor", functools.partial(from_array, "load"))


class _PromotionMode(TorchFunctionMode):
    """The mode that replaces float32 by float64 in every torch function; `note` is called with each promotion."""

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
        if asked and _is_of_optimizer(sys._getframe(1)):
            return func(*args, **kwargs)
        if asked:
            self.note(f"{_function(func, name)}({', '.join(dict.fromkeys(map(_text, asked)))})")
            args, kwargs = tree_map(_promoted_argument, (args, kwargs))
        return self._result(func, name, func(*args, **kwargs), args, kwargs)

    def _result(self, func: Any, name: str, result: Any, args: tuple, kwargs: dict) -> Any:
        """Promote a float32 result of no float32 input, as of a NumPy array; the note says that it stays rounded."""
        if not isinstance(result, torch.Tensor) or result.dtype not in WIDER:
            return result
        if any(isinstance(leaf, torch.Tensor) and leaf.dtype in WIDER for leaf in _flat(args, kwargs)):
            return result
        self.note(f"{_function(func, name)}, {STAY_ROUNDED} {_text(result.dtype)}")
        return result.to(WIDER[result.dtype])


def _is_of_optimizer(caller: FrameType | None) -> bool:
    """Return whether a torch function is called by one of torch.optim, whatever modes have passed it on."""
    while caller and caller.f_code.co_name == "__torch_function__":
        caller = caller.f_back
    return bool(caller) and caller.f_globals.get("__name__", "").startswith(OPTIMIZERS)


def _flat(args: tuple, kwargs: dict) -> Iterator[Any]:
    """Yield all arguments, and the leaves of those that are tuples, lists or dicts."""
    for argument in (*args, *kwargs.values()):
        if isinstance(argument, (tuple, list, dict)):
            yield from tree_leaves(argument)
        else:
            yield argument


def _wanted(argument: Any) -> bool:
    """Return whether an argument asks for float32 or complex64."""
    if isinstance(argument, str):
        return argument in TYPES
    return (isinstance(argument, torch.dtype) and argument in WIDER) or argument is torch.FloatTensor


def _promoted_argument(argument: Any) -> Any:
    if not _wanted(argument):
        return argument
    return WIDER[argument] if isinstance(argument, torch.dtype) else torch.float64


def _function(func: Any, name: str) -> str:
    """Return the function's name as the user writes it: ".to" for a tensor's method, else "torch.zeros"."""
    return f".{name}" if getattr(torch.Tensor, name, None) is func else f"torch.{name}"


def _text(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.") if isinstance(dtype, torch.dtype) else "FloatTensor"


def _path(running: list[nn.Module]) -> str:
    """Return the name of the innermost module that is being called, within the outermost one."""
    if not running:
        return BUILDING
    outermost, innermost = running[0], running[-1]
    named = (path for path, module in tree.named(outermost).items() if module is innermost)
    return next(named, type(innermost).__name__) or MODEL
