"""The user's model: built by their function, and called with the pair's inputs as its forward takes them."""

import functools
import inspect
import itertools
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from parity.config.pair import TARGET, Pair
from parity.config.schema import Case
from parity.core.errors import BackendError, UsageError, nearest
from parity.core.names import MODEL
from parity.doctor.program import load
from torch_impl.harness import precision
from torch_impl.harness.doctor.source import line_of
from torch_impl.harness.promotion import widened

LONGEST = 400  # characters of what the user's code says when it raises
Inputs = dict[str, torch.Tensor]
Parameter = inspect.Parameter
SINGLE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
GATHERING = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def build(pair: Pair, at: str, search: Sequence[str]) -> nn.Module:
    """The model at a precision, as the user's function makes it. Raises UsageError and BackendError."""
    given = pair.kwargs | pair.torch_kwargs
    with precision.policy(at), user_errors(f"torch={pair.torch} cannot be built"):
        model = load("torch", pair.torch, search=search, named=given)(**given)
    if not isinstance(model, nn.Module):
        raise UsageError(f"torch={pair.torch}: expected a torch.nn.Module, received {type(model).__name__}")
    if compiled := [name for name, module in model.named_modules() if isinstance(module, torch.jit.ScriptModule)]:
        raise UsageError(
            f"torch={pair.torch}: {compiled[0] or MODEL} is a torch.jit.ScriptModule, whose modules cannot be "
            "observed; return the nn.Module that it was made of"
        )
    if any(isinstance(parameter, nn.UninitializedParameter) for parameter in model.parameters()):
        raise UsageError(f"torch={pair.torch}: parameters have no shape before the first call; call it while building")
    return model


def ready(case: Case, at: str, search: Sequence[str], device: torch.device, places: list[str]) -> nn.Module:
    """The model, drawn from the case's seed, as wide as the run and on its device; `places`: what was widened."""
    torch.manual_seed(case.seed)
    model = build(case.model, at, search)
    places.extend(widened(model, at))
    with user_errors(f"torch={case.model.torch} cannot be moved to {device}"):
        return model.to(device)


def call(model: nn.Module, pair: Pair, inputs: Inputs) -> Any:
    """What the model returns, as it returns it. Raises UsageError and BackendError."""
    args, kwargs = _arguments(model, pair, {name: x for name, x in inputs.items() if name != TARGET})
    with user_errors(f"torch={pair.torch}: forward fails"):
        outputs = model(*args, **kwargs)
    if outputs is None:
        raise UsageError(f"torch={pair.torch}: forward returned None, expected a tensor, or several")
    return outputs


def tensors(arrays: dict[str, np.ndarray], device: torch.device) -> Inputs:
    """Inputs on their device; floats take the run's dtype."""
    return {name: tensor(array, device) for name, array in arrays.items()}


def tensor(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """One of them."""
    made = torch.from_numpy(array)
    return made.to(device, torch.get_default_dtype() if made.is_floating_point() else made.dtype)


@contextmanager
def user_errors(what: str) -> Iterator[None]:
    """What the user's code raises is told in one line with the line of theirs. Raises BackendError, and UsageError."""
    try:
        yield
    except (UsageError, BackendError):
        raise
    except (Exception, SystemExit) as error:
        line = line_of(error.__traceback__)
        where = f", at {line}" if line else ""
        said = textwrap.shorten(str(error), LONGEST, placeholder=" ...")
        raise BackendError(f"{what}: {type(error).__name__}: {said}{where}") from error


def _arguments(model: nn.Module, pair: Pair, inputs: Inputs) -> tuple[list[Any], dict[str, Any]]:
    """By name where forward has the name, else in order; a forward that takes one thing is given one dict."""
    parameters = inspect.signature(model.forward).parameters
    given = _nested({pair.inputs[name].torch or name: x for name, x in inputs.items()})
    explicit = {pair.inputs[name].torch.partition(".")[0] for name in inputs} - {""}
    taken = {name for name, one in parameters.items() if one.kind not in (*GATHERING, Parameter.POSITIONAL_ONLY)}
    if len(given) > 1 and _takes_one(parameters, given, explicit):
        return [given], {}
    if not any(one.kind == Parameter.VAR_KEYWORD for one in parameters.values()):
        _check(pair, explicit, taken)
    named = {name: x for name, x in given.items() if name in taken or name in explicit}
    rest = [x for name, x in given.items() if name not in named]
    places = [one for one in parameters.values() if one.kind in SINGLE and one.name not in named]
    if rest and (len(rest) > len(places) or any(one.kind == Parameter.POSITIONAL_ONLY for one in places)):
        return _bound(pair, model, rest, named)
    return _bound(pair, model, [], named | {one.name: x for one, x in zip(places, rest, strict=False)})


def _takes_one(parameters: Any, given: dict[str, Any], explicit: set[str]) -> bool:
    """Whether forward has one required argument, and no argument by the name of an input."""
    single = [one for one in parameters.values() if one.kind in SINGLE]
    required = [one for one in single if one.default is Parameter.empty]
    if len(required) != 1 or any(one.kind == Parameter.VAR_POSITIONAL for one in parameters.values()):
        return False
    return given.keys().isdisjoint(parameters) and (not explicit or len(single) == 1)


def _check(pair: Pair, explicit: set[str], taken: set[str]) -> None:
    """Raises UsageError where an argument is named that forward does not take."""
    for name, given in pair.inputs.items():
        head = given.torch.partition(".")[0]
        if head in explicit and head not in taken:
            hint = nearest(head, taken) or f"; it takes {', '.join(sorted(taken)) or 'arguments by position alone'}"
            raise UsageError(f"inputs.{name}: torch = {given.torch!r}: forward takes no argument {head!r}{hint}")


def _bound(pair: Pair, model: nn.Module, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Raises UsageError where forward cannot be called so."""
    try:
        inspect.signature(model.forward).bind(*args, **kwargs)
    except TypeError as error:
        takes = ", ".join(itertools.islice(inspect.signature(model.forward).parameters, 12))
        names = ", ".join(name for name in pair.inputs if name != TARGET)
        raise UsageError(
            f"torch={pair.torch}: forward({takes}) cannot be given the inputs {names}: {error}; name arguments with "
            'torch = "..." in [inputs]'
        ) from None
    return args, kwargs


def _nested(named: dict[str, Any]) -> dict[str, Any]:
    """Dotted names as dicts within dicts."""
    tree: dict[str, Any] = {}
    for name, value in named.items():
        *folders, last = name.split(".")
        functools.reduce(lambda branch, folder: branch.setdefault(folder, {}), folders, tree)[last] = value
    return tree
