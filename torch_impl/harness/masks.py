"""Dropout masks that both frameworks draw alike: whatever drops in training takes them from the shared source.

A mask is drawn for the module that is being called, which hooks tell; nn.functional's own functions are
replaced for the length of the training, so that a model's forward may call them directly, by whatever
name its file has imported them.
"""

import functools
import inspect
import math
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.nn import functional

from parity.core import random
from parity.core.errors import UsageError
from parity.core.names import MODEL
from torch_impl.dropout import Key, dropout, number

SUPPORTED = "shared masks are for nn.Dropout, F.dropout, F.scaled_dot_product_attention and nn.MultiheadAttention"
OTHERS = ("dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")


class Masks:
    """Draws the masks of one run. `replica`: this process's; None where each device is one (nn.DataParallel).

    `ordered`: a mask belongs to the number of the draw within the step, among those for tensors of as many elements,
    and not to a module, whose name the other framework does not know. Then whatever file calls a function of
    nn.functional drops so.
    """

    def __init__(self, seed: int, replica: int | None, ordered: bool = False):
        self.seed, self.replica, self.ordered = seed, replica, ordered
        self.step = 0
        self._calls: Counter[tuple[str, int]] = Counter()
        self._names = threading.local()  # nn.DataParallel has a thread for each GPU

    @contextmanager
    def drawn(self, model: nn.Module) -> Iterator[None]:
        """Within it the modules of the model, by name, drop by shared masks. Raises UsageError for other kinds."""
        with ExitStack() as stack:
            for name, module in model.named_modules():
                if isinstance(module, nn.RNNBase) and module.dropout:
                    raise UsageError(f"{name}: {type(module).__name__} has dropout of its own; {SUPPORTED}")
                stack.callback(module.register_forward_pre_hook(functools.partial(self._on_call, name)).remove)
                stack.callback(module.register_forward_hook(self._on_return, always_call=True).remove)
            files = _loaded() if self.ordered else _files(model)
            for file, name, replaced in _imported(files, self._replaced()):
                stack.enter_context(mock.patch.object(file, name, replaced))
            yield

    def on_step(self) -> None:
        """After an update: the next step draws other masks."""
        self.step += 1
        self._calls.clear()

    def dropped(self, x: torch.Tensor, rate: float) -> torch.Tensor:
        """x after the dropout of the module that is being called. Raises UsageError in a backward pass."""
        name = self._stack[-1] if self._stack else ""
        if torch._C._current_graph_task_id() != -1:  # as torch.utils.checkpoint tells; a call more, other masks
            raise UsageError(
                f"torch: {name or MODEL}: activations are recomputed in the backward pass (torch.utils.checkpoint), a "
                "dropout among them, and shared masks are drawn once; build the model without checkpointing, which "
                "changes no value"
            )
        name = random.mask_name(x.numel()) if self.ordered else name
        replica = x.device.index if self.replica is None else self.replica
        call = self._calls[name, replica]
        self._calls[name, replica] += 1
        return dropout(x, number(x), rate, Key(random.mask_key(self.seed, name, replica), self.step, call))

    @property
    def _stack(self) -> list[str]:
        """The modules that are being called in this thread, the innermost last."""
        if not hasattr(self._names, "stack"):
            self._names.stack = []
        return self._names.stack

    def _on_call(self, name: str, *_: Any) -> None:
        self._stack.append(name)

    def _on_return(self, *_: Any) -> None:
        self._stack.pop()

    def _replaced(self) -> dict[str, Callable[..., torch.Tensor]]:
        """The functions of nn.functional that drop, by name."""
        attention = functional.scaled_dot_product_attention

        def dropped(x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
            if not (training and p):
                return x
            return x.copy_(self.dropped(x, p)) if inplace else self.dropped(x, p)

        def attended(
            query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
            attn_mask: torch.Tensor | None = None, dropout_p: float = 0.0, *args: Any, **kwargs: Any,
        ) -> torch.Tensor:  # fmt: skip
            if not dropout_p:
                return attention(query, key, value, attn_mask, dropout_p, *args, **kwargs)
            drop = functools.partial(self.dropped, rate=dropout_p)
            return _attention(drop, query, key, value, attn_mask, *args, **kwargs)

        others = {name: _refused(name, getattr(functional, name)) for name in OTHERS}
        return {"dropout": dropped, "scaled_dot_product_attention": attended, **others}


def _imported(
    files: Iterable[ModuleType], replaced: dict[str, Callable[..., torch.Tensor]]
) -> list[tuple[ModuleType, str, Callable[..., torch.Tensor]]]:
    """Where nn.functional's functions have a name in these files."""
    functions = {id(getattr(functional, name)): function for name, function in replaced.items()}
    return [(file, name, functions[id(x)]) for file in files for name, x in vars(file).items() if id(x) in functions]


def _files(model: nn.Module) -> set[ModuleType]:
    """nn.functional, and the files of the model's classes."""
    classes = {kind for module in model.modules() for kind in type(module).__mro__}
    return {functional, *(sys.modules[kind.__module__] for kind in classes if kind.__module__ in sys.modules)}


def _loaded() -> set[ModuleType]:
    """nn.functional, and everything that is imported beside torch."""
    others = [file for name, file in sys.modules.items() if name.partition(".")[0] != "torch"]
    return {functional, *(file for file in others if isinstance(file, ModuleType))}


def _attention(
    drop: Callable[[torch.Tensor], torch.Tensor],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """F.scaled_dot_product_attention as its documentation writes it out, the weights dropped by `drop`."""
    if enable_gqa:
        key, value = (x.repeat_interleave(query.size(-3) // x.size(-3), -3) for x in (key, value))
    scores = query * (1 / math.sqrt(query.size(-1)) if scale is None else scale) @ key.transpose(-2, -1)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(attn_mask.logical_not(), -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask.to(scores.dtype)
    return drop(scores.softmax(-1) if attn_mask is None else _masked_softmax(scores)) @ value


def _masked_softmax(scores: torch.Tensor) -> torch.Tensor:
    """Zeros where a query may see no key, as PyTorch gives; 0 / 0 by the formula, which gradients must not meet."""
    blind = scores.isneginf().all(-1, keepdim=True)
    return scores.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)


def _refused(name: str, function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A function that drops otherwise: not in training."""

    def called(*args: Any, **kwargs: Any) -> torch.Tensor:
        given = inspect.signature(function).bind(*args, **kwargs)
        given.apply_defaults()
        if given.arguments["training"] and given.arguments["p"]:
            raise UsageError(f"F.{name} draws masks of another kind; {SUPPORTED}")
        return function(*args, **kwargs)

    return called
