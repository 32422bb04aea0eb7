"""What a program does while it is built: the lines that make modules and optimizers, and that place things on devices.

Enter a `Building` before the user's code is imported. Afterwards it knows the model's modules by their paths, even
those that hang in plain lists or dicts, where PyTorch itself does not see them.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.optim import Optimizer

from parity.core.patches import around
from parity.doctor import rewrite
from parity.doctor.evidence import Code, Module, Move, Weight
from parity.trace.keys import MODEL
from torch_impl.instruments import source
from torch_impl.instruments.origins import Origins, device, tensors
from torch_impl.instruments.structure import first, hidden, inner

SEQUENCES = (nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder, nn.TransformerEncoderLayer)
SEQUENCES += (nn.TransformerDecoderLayer, nn.MultiheadAttention, nn.RNNBase)


class Building(ExitStack):
    """Notes where modules and optimizers are made, and what is moved to a device."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
        # Whether each module was in training mode when it was called.
        self.trainings: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()
        self.optimizers: dict[Optimizer, str] = {}  # the line that made each
        # The expression within these lines that made each.
        self.spots: WeakKeyDictionary[nn.Module | Optimizer, rewrite.Spot | None] = WeakKeyDictionary()
        self.half = ""  # the line that made parameters float16
        self._moves: list[tuple[nn.Module, str, str, bool]] = []  # module, device, line, whether with a number
        self._names: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
        # By parameter and buffer name in its module: the line that created it, or that last changed its dtype.
        self._made: WeakKeyDictionary[nn.Module, dict[str, str]] = WeakKeyDictionary()
        self._moving = False

    def __enter__(self) -> "Building":
        self.enter_context(around(nn.Module, "__init__", self._make))
        self.enter_context(around(nn.Module, "_apply", self._apply))
        self.enter_context(around(nn.Module, "register_parameter", self._register))
        self.enter_context(around(nn.Module, "register_buffer", self._register))
        self.enter_context(self.noting_optimizers())
        return self

    def noting_optimizers(self) -> AbstractContextManager:
        """Return a patch within which new optimizers are noted."""
        return around(Optimizer, "__init__", self._make_optimizer)

    def _make_optimizer(self, make: Callable[..., None], optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
        make(optimizer, *args, **kwargs)
        self.optimizers[optimizer], self.spots[optimizer] = source.line(optimizer), source.spot(optimizer)

    def names(self, model: nn.Module) -> "WeakKeyDictionary[nn.Module, str]":
        """Return the path of each module, including hidden modules and their parts."""
        named = WeakKeyDictionary()
        for path, module in inner(model).named_modules():
            named[module] = path or MODEL
        for path, unknown in hidden(model):
            for inner_path, module in unknown.named_modules():
                named.setdefault(module, f"{path}.{inner_path}" if inner_path else path)
        self._names = named
        return named

    def origins(self, model: nn.Module) -> Origins:
        """Return an Origins that knows the model's parameters and buffers."""
        origins, registered = Origins(), set(inner(model).modules())
        for module, path in self.names(model).items():
            origins.note_weights(module, path, module in registered, self._made.get(module, {}))
        return origins

    def modules(self, model: nn.Module) -> list[Module]:
        """Return all modules of the model, and hidden ones that hold parameters or buffers."""
        registered = [(path or MODEL, module, True) for path, module in inner(model).named_modules()]
        unknown = [(path, module, False) for path, module in hidden(model)]
        return [self._module(*entry) for entry in (*registered, *unknown)]

    def weights(self, model: nn.Module, optimizers: list[Optimizer]) -> list[Weight]:
        """Return what the model and its optimizers hold: parameters, buffers and slots."""
        origins, model = self.origins(model), inner(model)
        parameters = dict(model.named_parameters())
        held = [_weight(origins, "parameter", name, tensor) for name, tensor in parameters.items()]
        held += [_weight(origins, "buffer", name, tensor) for name, tensor in model.named_buffers()]
        for name, parameter in parameters.items():
            for optimizer in optimizers:
                for slot in tensors(list(optimizer.state.get(parameter, {}).values())):
                    held.append(_weight(origins, "optimizer_state", name, slot))
        return held

    @property
    def moves(self) -> list[Move]:
        """Return what was put on which device, once per line, device and module; `names` must be called before."""
        by_key = {}
        for module, target, line, numbered in self._moves:
            path = self._names.get(inner(module), "")
            whole = path == MODEL
            by_key[path, target, line] = Move(device=target, source=line, module=path, whole=whole, numbered=numbered)
        return list(by_key.values())

    def _make(self, make: Callable[..., None], module: nn.Module, *args: Any, **kwargs: Any) -> None:
        make(module, *args, **kwargs)
        self.lines[module], self.spots[module] = source.line(module), source.spot(module)

    def _register(self, register: Callable[..., None], module: nn.Module, name: str, *args: Any, **kwargs: Any) -> None:
        register(module, name, *args, **kwargs)
        line, tensor = source.line(), getattr(module, name)
        self._made.setdefault(module, {})[name] = line
        if tensor is not None and device(tensor) != "cpu":
            self._moves.append((module, device(tensor), line, False))

    def _apply(self, apply: Callable[..., Any], module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        """Do what Module.to, .cuda, .half and the like all call, and note what it changes."""
        if self._moving:
            return apply(module, *args, **kwargs)
        tensor_before = first(module)
        with mock.patch.object(self, "_moving", True):
            apply(module, *args, **kwargs)
        self._note_change(module, tensor_before)
        return module

    def _note_change(self, module: nn.Module, before: torch.Tensor | None) -> None:
        """Note that a module was moved to another device, or got another dtype."""
        after = first(module)
        if before is None or after is None:
            return
        line = source.line()
        if line and device(before) != device(after):
            self._moves.append((module, device(after), line, _is_numbered()))
        if before.dtype != after.dtype:
            self.half = line if after.dtype == torch.float16 else self.half
            for part in module.modules():
                self._made[part] = dict.fromkeys(self._made.get(part, ()), line)

    def _facts(self, module: nn.Module) -> dict[str, int | float | bool | str]:
        facts: dict[str, int | float | bool | str] = {}
        if isinstance(module, nn.Embedding):
            facts["rows"] = module.num_embeddings
        if isinstance(module, SEQUENCES):
            settings = [part.batch_first for part in module.modules() if hasattr(part, "batch_first")]
            facts |= {"batch_first": settings[0]} if settings else {}
        if isinstance(module, nn.modules.batchnorm._BatchNorm):  # the line that makes it, with a norm of each sample
            norm = f"GroupNorm(1, {module.num_features})"
            mended = rewrite.code(self.spots.get(module), lambda made: in_place(made, norm))
            facts |= {"each_sample": mended.fix} if mended else {}
        own = list(module.parameters())
        if own and not any(parameter.requires_grad for parameter in own):
            facts["frozen"] = True
        return facts

    def _module(self, path: str, module: nn.Module, registered: bool) -> Module:
        line, mode = self.lines.get(module, ""), self.trainings.get(module, module.training)
        kind, facts = type(module).__name__, self._facts(module)
        return Module(name=path, kind=kind, source=line, training=mode, registered=registered, facts=facts)


def _is_numbered() -> bool:
    """Return whether the user's line that moves a module names the number of the device, as far as that is known."""
    frame, call = source.frame(), rewrite.expression(source.spot())
    node = call.argument("device", 0) if call and frame else None
    value = getattr(node, "value", None)
    if frame and hasattr(node, "id"):
        value = frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    return isinstance(value, int) or ":" in str(value) or getattr(value, "index", None) is not None


def in_place(made: rewrite.Expression, module: str) -> Code | None:
    """Return a line that makes a module of torch.nn, such as nn.Softmax(dim=1), with another one in its place."""
    home = made.text(made.node.func).rpartition(".")[0] if made.function in vars(nn) else ""
    return made.with_text(made.node, f"{home or 'torch.nn'}.{module}") if made.function in vars(nn) else None


def _weight(origins: Origins, kind: Any, name: str, tensor: torch.Tensor) -> Weight:
    owner = name.rpartition(".")[0] or MODEL
    trained = tensor.requires_grad if kind == "parameter" else False
    return Weight(name=name, module=owner, kind=kind, tensor=origins.describe(tensor), trained=trained)
