"""A user's model that lives, of which one module can be called again as it was called in the first forward pass."""

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_map

from parity.config.pair import Train
from parity.diagnose.experiment import live
from parity.diagnose.experiment.candidates import known_functions
from parity.diagnose.experiment.knobs import Owner
from parity.pairs.vary.coverage import Observer
from torch_impl.experiment.call import copied, like, recorded
from torch_impl.experiment.later import Later
from torch_impl.experiment.operations import operations
from torch_impl.instruments import source
from torch_impl.record import calls, tree, weights
from torch_impl.record.pair.outputs import flat
from torch_impl.record.pair.vary import Instance


class Live(live.Live):
    """A built model; `train`: how it is trained, in its first pass too; `later`: what comes after that."""

    functions = known_functions(
        nn.functional,
        gelu_tanh=lambda x, *_, **__: nn.functional.gelu(x, approximate="tanh"),  # whatever the form that is asked for
        gelu_exact=lambda x, *_, **__: nn.functional.gelu(x, approximate="none"),
        # What Huber's loss is where a smooth L1 loss is asked for: beta times as much.
        huber_loss=lambda *args, beta=1.0, **kwargs: nn.functional.huber_loss(*args, delta=beta, **kwargs),
    )
    base, called, separator = nn.Module, nn.Module, "."
    array, like = staticmethod(weights.array), staticmethod(like)
    line, _mapped, _tensors = staticmethod(source.nearest), staticmethod(tree_map), (torch.Tensor,)
    _recorded, _operations = staticmethod(recorded), staticmethod(operations)

    def __init__(self, built: Instance, inputs: dict[str, np.ndarray], train: Train | None, later: Later) -> None:
        own_step = torch.enable_grad()(later.own_step) if train and train.torch_step else None
        super().__init__(
            built, lambda: built.call(inputs, train is not None, Observer()), own_step, later, tree.named(built.model)
        )
        self._innermost = partial(calls.innermost, {module: path for path, module in self._modules.items()})
        calls.observed(self._modules, self._on_call, self._on_return)

    def _owner(self, path: str) -> Owner:
        module = self._modules[path]
        sizes = {size for parameter in module.parameters(recurse=False) for size in parameter.shape}
        return Owner(path, tree.kind(module), module, sizes)

    def _run(self, call: Callable[[], Any]) -> Any:
        if not self._is_later:
            self._built.reload_written()
        with torch.no_grad():
            return call()

    def _bound(self, call: calls.Call) -> tuple[dict[str, Any], Callable[[], Any]]:
        bound = inspect.signature(call.module.forward).bind(*call.args, **call.kwargs)
        bound.apply_defaults()
        return bound.arguments, lambda: call.module(*copied(bound.args), **copied(bound.kwargs))

    def _on_call(self, call: calls.Call) -> None:
        self._enter(
            call,
            lambda call: call._replace(args=copied(call.args), kwargs=copied(call.kwargs)),
            lambda call: _cloned(tree.passed(call.module, call.args, call.kwargs)),
        )

    def _on_return(self, call: calls.Call, outputs: Any) -> None:
        self._leave(call, lambda: _cloned(flat(outputs)))


def _cloned(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.detach().clone() for tensor in tensors]
