"""Dropout masks that both frameworks draw alike: in training, all dropout takes its masks from the shared source.

In a user's model its other random numbers do as well, also in evaluation (instruments/noise.py).

A mask is drawn for the module that is being called. The functions of nn.functional are
replaced for the length of the training, under whatever names a model's files have imported them, so that a model's
forward may call them directly.
"""

import functools
import inspect
import itertools
import math
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from torch import nn

from parity.core import random
from parity.core.errors import UsageError
from parity.core.patches import applied, around, calling, wrapping
from parity.data.masks import Draws
from parity.trace.keys import MODEL
from torch_impl.dropout import Key, dropout, number, words
from torch_impl.instruments import noise
from torch_impl.record import calls, tree

SUPPORTED = (
    "masks shared by both frameworks are available for nn.Dropout, nn.Dropout1d to 3d, F.dropout, "
    "F.scaled_dot_product_attention, nn.MultiheadAttention and recurrent modules"
)
CHANNELS = {"dropout1d": 1, "dropout2d": 2, "dropout3d": 3}  # the axes behind the channels, which share a draw
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
OTHERS = ("alpha_dropout", "feature_alpha_dropout")


class Masks(Draws):
    """Draws the dropout masks of one run.

    `replica` is the number of this process's replica, or None if each device is a replica (nn.DataParallel).

    With `ordered` a mask is identified by the number of its draw within the step, counted among tensors with the same
    number of elements, and not by the module, whose name the other framework does not know. The functions of
    nn.functional are then replaced in every loaded file, and other random numbers are shared.
    """

    def __init__(self, seed: int, replica: int | None, ordered: bool = False):
        super().__init__(seed)
        self.replica, self.ordered = replica, ordered
        self._paths: dict[nn.Module, str] = {}

    @contextmanager
    def drawn(self, model: nn.Module, training: bool = True) -> Iterator[None]:
        """Let the modules of the model draw shared masks within the block."""
        self._paths = tree.paths(model)
        if self.ordered:  # whatever is loaded and is not torch's own, or else what defines the model's classes
            others = [file for name, file in sys.modules.items() if name.partition(".")[0] != "torch"]
        else:
            classes = {kind for module in model.modules() for kind in type(module).__mro__}
            others = [sys.modules.get(kind.__module__) for kind in classes]
        files = {nn.functional, *(file for file in others if isinstance(file, ModuleType))}
        functions = _imported(files, self._replaced())
        drawn = noise.patches(self.numbers) if self.ordered else ()
        recurrent = [around(torch._VF, name, self._layer_by_layer) for name in RECURRENT if training]
        with calls.tracked(), applied([*itertools.starmap(mock.patch.object, functions), *drawn, *recurrent]):
            yield

    def _layer_by_layer(self, run: Callable[..., Any], x: Any, *given: Any) -> Any:
        """Run a recurrent module's kernel once for each layer, with the dropout between them outside of it.

        Raises UsageError for a packed sequence, whose elements Keras's masks do not know.
        """
        is_packed = torch.is_tensor(given[0]) and not given[0].is_floating_point()  # then by the sizes of its batches
        state, weights, bias, layers, rate, training, is_bidirectional, *rest = given[is_packed:]
        if not (training and rate and layers > 1):
            return run(x, *given)
        if is_packed:
            name = calls.innermost(self._paths) or MODEL
            raise UsageError(f"{name}: has dropout of its own, and is given a packed sequence; {SUPPORTED}")
        states = [state] if torch.is_tensor(state) else state
        size, number = 1 + is_bidirectional, len(weights) // layers
        ends = []
        for layer in range(layers):
            own = tuple(each[layer * size : (layer + 1) * size] for each in states)
            of_layer = weights[layer * number : (layer + 1) * number]
            begun = own[0] if torch.is_tensor(state) else own
            x, *end = run(x, begun, of_layer, bias, 1, 0.0, training, is_bidirectional, *rest)
            ends.append(end)
            x = self.dropped(x, rate) if layer < layers - 1 else x
        return (x, *(torch.cat(each) for each in zip(*ends, strict=True)))

    def dropped(self, x: torch.Tensor, rate: float) -> torch.Tensor:
        """Return x after the dropout of the module that is being called.

        Raises UsageError in a backward pass, where torch.utils.checkpoint calls modules again: that call would count as
        another one, and draw another mask.
        """
        name = calls.innermost(self._paths) or ""
        if calls.is_backward() and not self.is_replayed:  # one more call draws other masks
            raise UsageError(
                f"torch: {name or MODEL}: activations are recomputed in the backward pass (torch.utils.checkpoint), a "
                "dropout among them, and shared masks are drawn once; build the model without checkpointing, which "
                "changes no value"
            )
        if self.ordered:
            of, key = self._ordered(random.UNIFORM, x, noise.state(x.device))
            return dropout(x, of, rate, key)
        replica = x.device.index if self.replica is None else self.replica
        key = Key(random.mask_key(self.seed, name, replica), *self._next((name, replica)))
        return dropout(x, number(x), rate, key)

    def numbers(self, kind: str, x: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
        """Return random numbers of a kind for the elements of a tensor, into which a generator has just drawn."""
        of, key = self._ordered(kind, x, noise.state(x.device, generator))
        return noise.numbers(kind, of, lambda each: words(each, key))

    def _ordered(self, kind: str, x: torch.Tensor, state: Hashable) -> tuple[torch.Tensor, Key]:
        """Return what identifies the elements of a tensor, and the next draw for tensors of its size."""
        place = calls.innermost(self._paths) or MODEL
        start, size = self._extent(x.numel(), place)
        name = random.mask_name(size, kind)
        draw = self.repeats.first((name, state), self._next(name), place)
        return number(x) + start if start else number(x), Key(random.mask_key(self.seed, name, 0), *draw)

    def _replaced(self) -> dict[str, Callable[..., torch.Tensor]]:
        """Return replacements of the functions of nn.functional that drop, by name."""
        attention = nn.functional.scaled_dot_product_attention

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

        def channels(axes: int, x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
            batched = x.dim() > axes + 1 or axes == 2  # dropout2d takes three axes for (N, C, L)
            ones = x.new_ones(x.shape[: 1 + batched] + (1,) * (x.dim() - 1 - batched))
            kept = dropped(ones, p, training)
            return x.mul_(kept) if inplace else x * kept

        of_channels = {name: calling(channels, axes) for name, axes in CHANNELS.items()}
        others = {name: wrapping(_refused, getattr(nn.functional, name)) for name in OTHERS}
        return {"dropout": dropped, "scaled_dot_product_attention": attended, **of_channels, **others}


def _imported(
    files: Iterable[ModuleType], replaced: dict[str, Callable[..., torch.Tensor]]
) -> list[tuple[ModuleType, str, Callable[..., torch.Tensor]]]:
    """Return (file, name in it, replacement) of all references to the functions; remembered for the same files."""
    functions = {id(getattr(nn.functional, name)): name for name in replaced}
    key = frozenset(functions), frozenset((file.__name__, id(file)) for file in files)
    if key not in _references:
        _references.clear()
        named = ((file, name, functions.get(id(value))) for file in files for name, value in vars(file).items())
        _references[key] = [(file, name, function) for file, name, function in named if function]
    return [(file, name, replaced[function]) for file, name, function in _references[key]]


_references: dict[Any, list[tuple[ModuleType, str, str]]] = {}  # what was found last, by the files searched


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
    """Compute F.scaled_dot_product_attention by its documented formula, with `drop` applied to the weights."""
    if enable_gqa:
        key, value = (x.repeat_interleave(query.size(-3) // x.size(-3), -3) for x in (key, value))
    scores = query * (1 / math.sqrt(query.size(-1)) if scale is None else scale) @ key.transpose(-2, -1)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(attn_mask.logical_not(), -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask.to(scores.dtype)
    if attn_mask is None:
        return drop(scores.softmax(-1)) @ value
    # A query that may see no key gets zeros, as PyTorch returns: the formula gives 0 / 0, and a gradient of NaN.
    blind = scores.isneginf().all(-1, keepdim=True)
    return drop(scores.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)) @ value


def _refused(function: Callable[..., torch.Tensor], /, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Call a function that drops in another way; raise UsageError if that is in training."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    if bound.arguments["training"] and bound.arguments["p"]:
        raise UsageError(f"F.{function.__name__} draws masks of another kind than nn.Dropout; {SUPPORTED}")
    return function(*args, **kwargs)
