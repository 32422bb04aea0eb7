"""The user's PyTorch model: builds it with their function, and calls it with the pair's inputs."""

import inspect
import itertools
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn

from parity.config.pair import Pair
from parity.config.schema import Case
from parity.core import program, script
from parity.core.errors import MESSAGE, BackendError, UsageError, nearest
from parity.pairs import structure
from parity.trace.keys import MODEL
from torch_impl.instruments.source import line_of
from torch_impl.record import precision, tree
from torch_impl.record.pair.script import Script
from torch_impl.record.pair.sources import repeated_draws

Inputs = dict[str, torch.Tensor]
script.kinds["torch"] = Script
Parameter = inspect.Parameter
SINGLE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
UNNAMED = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD, Parameter.POSITIONAL_ONLY)  # not passed by name


def build(pair: Pair, at: str, search: Sequence[str]) -> nn.Module:
    """Build the model at a precision with the user's function.

    Raises UsageError if the function does not return a module whose parameters have shapes, and BackendError if it
    raises.
    """
    kwargs = pair.kwargs | pair.torch_kwargs
    with precision.policy(at), user_errors(f"torch={pair.torch} cannot be built"):
        model = program.load("torch", pair.torch, search=search, named=kwargs)(**kwargs)
    if not isinstance(model, nn.Module):
        raise UsageError(f"torch={pair.torch}: expected a torch.nn.Module, received {type(model).__name__}")
    if compiled := [path for path, module in tree.named(model).items() if isinstance(module, torch.jit.ScriptModule)]:
        raise UsageError(
            f"torch={pair.torch}: {compiled[0] or MODEL} is a torch.jit.ScriptModule, whose modules cannot be "
            "observed; return the nn.Module that it was made of"
        )
    if any(isinstance(parameter, nn.UninitializedParameter) for parameter in model.parameters()):
        raise UsageError(
            f"torch={pair.torch}: parameters have no shape before the first call; call the model once in the function"
        )
    return model


def ready(
    case: Case, at: str, search: Sequence[str], device: torch.device, promotions: list[str], surveyed: bool = False
) -> nn.Module:
    """Build the model as in a fresh process, with the case's seed, in the run's precision, on the device.

    Parameters that had to be promoted to that precision are added to `promotions`. Unless its initial values are
    `surveyed`, it is to be given others.
    """
    program.begin_anew(case.seed)
    torch.manual_seed(case.seed)
    with nullcontext() if surveyed else repeated_draws():
        model = build(case.model, at, search)
    for name, parameter in model.named_parameters():
        if case.model.holds(name):
            parameter.requires_grad_(False).data.zero_()
    promotions.extend(precision.promote_weights(model, at))
    with user_errors(f"torch={case.model.torch} cannot be moved to {device}"):
        return model.to(device)


def call(model: nn.Module, pair: Pair, inputs: Inputs) -> Any:
    """Return the model's outputs. Raises UsageError for wrong inputs or no outputs, BackendError if forward raises."""
    args, kwargs = _arguments(model, pair, inputs)
    with user_errors(f"torch={pair.torch}: forward fails"):
        outputs = model(*args, **kwargs)
    if outputs is None:
        raise UsageError(f"torch={pair.torch}: forward returned None, expected a tensor, or a tuple or dict of tensors")
    return outputs


def tensors(arrays: dict[str, np.ndarray], device: torch.device) -> Inputs:
    """Convert inputs to tensors on the device, of which a model may do what it likes; floats get the run's dtype."""
    return {name: tensor(array.copy(), device) for name, array in arrays.items()}


def tensor(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """Convert an array to a tensor on the device; floats get the run's dtype."""
    on_host = torch.from_numpy(array)
    return on_host.to(device, torch.get_default_dtype() if on_host.is_floating_point() else on_host.dtype)


@contextmanager
def user_errors(what: str) -> Iterator[None]:
    """Turn an exception of the user's code into a BackendError of one line, with its line; `what` says what failed."""
    try:
        yield
    except (UsageError, BackendError):
        raise
    except (Exception, SystemExit) as error:
        line = line_of(error.__traceback__)
        where = f", at {line}" if line else ""
        said = textwrap.shorten(str(error), MESSAGE, placeholder=" ...")
        raise BackendError(f"{what}: {type(error).__name__}: {said}{where}") from error


def _arguments(model: nn.Module, pair: Pair, inputs: Inputs) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and keyword arguments with which forward gets the inputs.

    An input is passed by name if forward has an argument of its name, else in order. A forward with a single argument
    gets several inputs as one dict, or as a tuple if it takes them apart as one.
    """
    parameters = inspect.signature(model.forward).parameters
    inputs = {name: x for name, x in inputs.items() if pair.inputs[name].only != "keras"}
    whole = structure.wholes({pair.inputs[name].torch or name: x for name, x in inputs.items()}, torch.stack)
    given, explicit = structure.nested(whole), {_argument(pair, name) for name in inputs} - {""}
    taken = {name for name, parameter in parameters.items() if parameter.kind not in UNNAMED}
    if len(given) > 1 and _takes_one(parameters, given, explicit):
        return structure.as_taken(model.forward, [given], {})
    if not any(parameter.kind == Parameter.VAR_KEYWORD for parameter in parameters.values()):
        _check(pair, explicit, taken)
    named = {name: x for name, x in given.items() if name in taken or name in explicit}
    rest = [x for name, x in given.items() if name not in named]
    free = [parameter for parameter in parameters.values() if parameter.kind in SINGLE and parameter.name not in named]
    if rest and (len(rest) > len(free) or any(parameter.kind == Parameter.POSITIONAL_ONLY for parameter in free)):
        return _bound(pair, model, rest, named)
    named |= {parameter.name: x for parameter, x in zip(free, rest, strict=False)}
    # Without names of arguments in the file, as people write it: hooks before a forward see such inputs alone.
    ordered = [name for name, parameter in parameters.items() if parameter.kind in SINGLE]
    args = [named.pop(name) for name in itertools.takewhile(lambda name: name in named.keys() - explicit, ordered)]
    return _bound(pair, model, args, named)


def _argument(pair: Pair, name: str) -> str:
    """Return the argument that the pair's file gives an input, or a part of one; "" if it gives none."""
    return pair.inputs[name].torch.partition(structure.PART)[0].partition(".")[0]


def _takes_one(parameters: Any, given: dict[str, Any], explicit: set[str]) -> bool:
    """Return whether forward has a single required argument, and none for further inputs."""
    single = [parameter for parameter in parameters.values() if parameter.kind in SINGLE]
    required = [parameter for parameter in single if parameter.default is Parameter.empty]
    if len(required) != 1 or any(parameter.kind == Parameter.VAR_POSITIONAL for parameter in parameters.values()):
        return False
    takes_names = any(parameter.kind == Parameter.VAR_KEYWORD for parameter in parameters.values())
    is_alone = given.keys().isdisjoint(parameters) or (len(given) > len(parameters) and not takes_names)
    return is_alone and (not explicit or len(single) == 1)


def _check(pair: Pair, explicit: set[str], taken: set[str]) -> None:
    """Raise UsageError if the pair's file names an argument that forward does not take."""
    for name, given in pair.inputs.items():
        head = _argument(pair, name)
        if head in explicit and head not in taken:
            hint = nearest(head, taken) or f"; it takes {', '.join(sorted(taken)) or 'arguments by position alone'}"
            raise UsageError(f"inputs.{name}: torch = {given.torch!r}: forward takes no argument {head!r}{hint}")


def _bound(pair: Pair, model: nn.Module, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments, or raise UsageError if forward cannot be called with them."""
    try:
        inspect.signature(model.forward).bind(*args, **kwargs)
    except TypeError as error:
        takes = ", ".join(itertools.islice(inspect.signature(model.forward).parameters, 12))
        names = ", ".join(name for name in pair.inputs if name not in pair.loss_inputs)
        raise UsageError(
            f"torch={pair.torch}: forward({takes}) cannot be given the inputs {names}: {error}; name arguments with "
            'torch = "..." in [inputs]'
        ) from None
    return structure.as_taken(model.forward, args, kwargs)
