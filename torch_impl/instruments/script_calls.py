"""How a training script calls its model and its optimizer: with samples and options, and with a closure."""

import functools
import gc
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import _global_optimizer_pre_hooks
from torch.utils._pytree import tree_leaves, tree_map

from parity.config.pair import SAMPLE_WEIGHT, TARGET
from parity.core.errors import UsageError

VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
LABELS = ("labels", "label", "targets", TARGET)  # optional arguments of models that compute a loss themselves

WRAPPERS = {
    "OptimizedModule": "_orig_mod",
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "FullyShardedDataParallel": "module",
}


def closure_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what computes the gradients within a step of an optimizer, of its arguments; None if nothing does."""
    return kwargs.get("closure") or next(iter(args[1:]), None)


def announce(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Let the hooks of a step be called, as without a closure, when its closure has computed the gradients.

    A hook itself, before a step; returns the step's arguments, or nothing where it has no closure.
    """
    if (closure := closure_of(args, kwargs)) is None:
        return None

    def announced() -> Any:
        returned = closure()
        for hook in list(_global_optimizer_pre_hooks.values()):
            hook(optimizer, (optimizer,), {})
        return returned

    return (optimizer, announced), {}


def with_options_named(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with the first that holds no tensor, and all behind it, by name."""
    parameters = inspect.signature(model.forward).parameters
    is_option = [not any(isinstance(each, torch.Tensor) for each in tree_leaves(value)) for value in args]
    if True not in is_option or any(each.kind is each.VAR_POSITIONAL for each in parameters.values()):
        return args, kwargs
    at = is_option.index(True)
    return args[:at], dict(zip(list(parameters)[at:], args[at:], strict=False)) | kwargs


def tensors_of_call(
    script: str, model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, torch.Tensor]:
    """Return a call's tensors of samples by argument; raises UsageError for other values within containers."""
    signature, left_out = inspect.signature(model.forward), options(kwargs)
    samples = {name: value for name, value in kwargs.items() if name not in left_out}
    named: dict[str, Any] = {}
    for name, value in signature.bind_partial(*args, **samples).arguments.items():
        parameter = signature.parameters[name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            named |= {f"{name}{number}": each for number, each in enumerate(value)}
        elif parameter.kind is parameter.VAR_KEYWORD:
            named |= value
        elif value is not parameter.default:
            is_label = name in LABELS and parameter.default is None
            named[TARGET if is_label else f"{name}_" if name in (TARGET, SAMPLE_WEIGHT) else name] = value
    flat: dict[str, Any] = {}
    for name, value in named.items():
        parts = dict(enumerate(value)) if isinstance(value, (list, tuple)) else value
        flat |= {f"{name}.{key}": each for key, each in parts.items()} if isinstance(parts, dict) else {name: value}
    for name, value in flat.items():
        if not isinstance(value, torch.Tensor):
            raise UsageError(f"{script}: calls its model with {name}={value!r} within others, expected tensors there")
    return flat


is_undivided: ContextVar[bool] = ContextVar("is_undivided", default=False)  # whether a step gets its batch whole
evaluating: WeakKeyDictionary[nn.Module, list[nn.Module]] = WeakKeyDictionary()  # parts of the model of a script


def keep_modes(model: nn.Module, trained: Iterable[nn.Module]) -> None:
    """Keep which parts of a model that is `trained`, or of several, are in evaluation mode, such as frozen norms."""
    parts = [part for each in trained if is_training(each) for part in each.modules()]
    evaluating[model] = [part for part in parts if not part.training]


def is_training(model: nn.Module) -> bool:
    """Return whether a model, or a part of it, is in training mode."""
    return any(part.training for part in model.modules())


def train(model: nn.Module, is_training: bool = True) -> nn.Module:
    """Put a model into training mode, but for what its script has left in evaluation mode; or into evaluation mode."""
    model.train(is_training)
    for part in evaluating.get(model, ()):
        part.training = False
    return model


def with_states(
    model: nn.Module, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return the forward of a model with the options of a call, and zeros for the states, if these are left out.

    What the call is given as a sparse tensor, the forward gives on in that layout, also if it is given a dense one.
    `names`: those of the states among its tensors; `args`, `kwargs`: of the call.
    """
    forward, signature, chosen = model.forward, inspect.signature(model.forward), options(kwargs)
    given = signature.bind_partial(*args, **kwargs).arguments
    states = {name: value for name, value in given.items() if name in {each.partition(".")[0] for each in names}}
    layouts = {name: each.layout for name, each in given.items() if isinstance(each, torch.Tensor)}
    samples = next((len(each) for each in tree_leaves(args) if isinstance(each, torch.Tensor)), 0)

    def called(*args: Any, **kwargs: Any) -> Any:
        number = next((len(each) for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)), samples)
        dtype = next((each.dtype for each in model.parameters() if each.is_floating_point()), None)

        def zeros(state: torch.Tensor) -> torch.Tensor:
            return state.new_zeros([number if size == samples else size for size in state.shape], dtype=dtype)

        bound = signature.bind_partial(*args, **kwargs)
        for name, layout in layouts.items():
            if layout != torch.strided and isinstance(dense := bound.arguments.get(name), torch.Tensor):
                bound.arguments[name] = dense.to_sparse(layout=layout)
        own = {*bound.arguments, *kwargs}  # the script may give them later on
        left_out = {name: tree_map(zeros, each) for name, each in states.items()} | chosen
        left_out = {name: each for name, each in left_out.items() if name not in own}
        return forward(*bound.args, **bound.kwargs, **left_out)

    own, is_optional = list[inspect.Parameter](), False
    for each in signature.parameters.values():
        is_optional = each.kind not in VARIABLE and (is_optional or each.name in (*states, *chosen))
        own.append(each.replace(default=None) if is_optional and each.default is each.empty else each)
    called.__signature__ = signature.replace(parameters=own)
    return called


class StandIn(torch.autograd.Function):
    """The numbers of another tensor, with a gradient by the script's own: it may differentiate by its model's input."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        return given.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0], None


def attach(model: nn.Module, modules: Mapping[str, nn.Module]) -> None:
    """Make frozen modules parts of a model, which does not call them, so that their weights are the model's.

    Their mode stays what the script has given them.
    """
    parts = list(model) if modules and isinstance(model, nn.Sequential) else []

    def in_order(x: Any) -> Any:
        return functools.reduce(lambda made, part: part(made), parts, x)

    if parts:
        model.forward = in_order
    for name, module in modules.items():
        module.requires_grad_(False)
        module.train = functools.partial(lambda own, mode=True: own, module)
        model.add_module(f"{name}_" if hasattr(model, name) else name, module)


Copy = tuple[nn.Module, nn.Module]  # a module, and the model that it is a copy of


def copies(models: Sequence[nn.Module]) -> list[Copy]:
    """Return the modules beside models that have copies of all weights of a model, such as a target network."""
    within = {module for model in models for module in model.modules()}
    beside = [each for each in gc.get_objects() if issubclass(type(each), nn.Module) and each not in within]
    weights = [(of, own) for of in models if (own := of.state_dict())]
    return [(each, of) for of, own in weights for each in beside if _holds(each, own)]


def copy_to(pairs: Iterable[Copy]) -> list[Copy]:
    """Give the weights of models to their copies, which are left to themselves then: none is returned."""
    for each, of in pairs:
        each.load_state_dict(of.state_dict())
    return []


def _holds(module: nn.Module, weights: Mapping[str, torch.Tensor]) -> bool:
    held = module.state_dict()
    return held.keys() == weights.keys() and all(
        held[name].data_ptr() != each.data_ptr() and torch.equal(held[name], each) for name, each in weights.items()
    )


def is_state(tensor: torch.Tensor, returned: Sequence[torch.Tensor]) -> bool:
    """Return whether a tensor is one of those that a model has returned before, or of zeros, with which it begins."""
    before, tensor = (each for each in returned if each.shape == tensor.shape), dense(tensor)
    return not tensor.any() or any(torch.equal(each.detach(), tensor.detach()) for each in before)


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor, of a sparse one the same as a dense one."""
    return tensor if tensor.layout == torch.strided else tensor.to_dense()


def options(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the named arguments of a model's call that hold nothing of each sample."""
    return {
        name: value
        for name, value in kwargs.items()
        if not any(isinstance(each, torch.Tensor) and each.dim() for each in tree_leaves(value))
    }


def unwrapped(module: nn.Module) -> nn.Module:
    """Return the module within torch.compile's, and within those that distribute it."""
    inner = WRAPPERS.get(type(module).__name__)
    return unwrapped(getattr(module, inner)) if inner else module


def share(first: Iterable[torch.Tensor], second: Iterable[torch.Tensor]) -> bool:
    """Return whether two hold a tensor in common."""
    return not set(map(id, first)).isdisjoint(map(id, second))


def others(optimizers: Sequence[Optimizer], parameters: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return what optimizers train beside these parameters."""
    own = set(map(id, parameters))
    return [each for each in held(optimizers) if each.requires_grad and id(each) not in own]


def held(optimizers: Sequence[Optimizer]) -> Iterator[torch.Tensor]:
    """Return the parameters of optimizers."""
    return (each for optimizer in optimizers for group in optimizer.param_groups for each in group["params"])
