"""What a side of a pair's file does otherwise than the plain run: what is called, and how each batch is cut.

A compiled model is called without hooks and modes, which the compiler would trace; in its graphs, dropout draws its
masks in an op of its own. Where ranks train together, the first one records for all.
"""

import functools
import shutil
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from msgspec.structs import replace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import _get_current_function_mode_stack, _pop_mode_temporarily
from torch.utils.checkpoint import checkpoint

from parity.config.schema import Case
from parity.config.sides import TorchSide, outermost
from parity.core.errors import BackendError
from parity.core.patches import applied, calling
from parity.core.precision import HIGH
from parity.core.wording import count
from parity.data.pairs import PairData, Rows, rows_of
from parity.runtime.drive import Rank
from parity.trace.keys import MODEL
from parity.trace.parts import Parts
from parity.trace.recorder import Recorder
from parity.trace.training import Training
from torch_impl.instruments import devices
from torch_impl.record import calls, tree, weights
from torch_impl.record.masks import Masks
from torch_impl.record.pair.outputs import flat
from torch_impl.record.precision import promote_graph


class Setup:
    """How a run of a side calls its model; without a side, as the plain run does.

    `joined`: how many parts of a batch a script is run on in turn.
    """

    def __init__(self, case: Case, side: TorchSide | None = None, joined: int = 1) -> None:
        self.side, self.is_plain = side or TorchSide(), side is None and joined == 1
        # That of this process, among those that train together
        self.rank = devices.rank() if self.side.ranks > 1 else Rank(0, 1)
        self.masks = (_CompiledMasks if self.side.compile else Masks)(case.seed, 0, ordered=True)
        self.called: nn.Module | None = None  # by the training: the model, or what it is wrapped in; set by `wrap`
        self.batch: list[np.ndarray] = []  # the inputs of a step of the user's own, on all ranks; none for a plain step
        self.on_outputs: Callable[[Any], object] = lambda _: None  # gets what a compiled model returns: it has no hooks
        self._breaks: list[str] = []
        self._by, self._graphs = "", 0

    def device(self, device: torch.device) -> torch.device:
        """Return the device of this rank; `device` is that of a single process."""
        if self.rank.of > 1 and device.type == "cuda":
            device = torch.device("cuda", self.rank.number % torch.cuda.device_count())
        if self.rank.of > 1:
            devices.join(device)
        return device

    def recorder(self, recorder: Recorder) -> Recorder:
        """Return the recorder of whole batches, which passes on to `recorder` what is joined of its parts."""
        return Parts(recorder, self.rank.number, self._gathered) if self.side.parts > 1 else recorder

    def shard(self, model: nn.Module) -> None:
        """Shard the parameters over the ranks, if the side does: of each item of a nn.ModuleList, then of the rest."""
        if not self.side.is_sharded:
            return
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard  # takes half a second to import

        mesh = init_device_mesh(next(model.parameters()).device.type, (self.rank.of,))
        lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
        for block in [block for blocks in reversed(lists) for block in blocks if any(True for _ in block.parameters())]:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)

    def wrap(self, model: nn.Module, at: str, promotions: list[str]) -> None:
        """Let the model be called as the side does. Raises UsageError if it has no module to checkpoint."""
        self.called = model
        if pattern := self.side.checkpointing:
            named = {path: module for path, module in tree.named(model).items() if path}
            for path in outermost(pattern, named, "."):
                named[path].forward = _checkpointed(named[path].forward, self.masks)
        if self.side.compile:
            self._compile(model, at, promotions)
        if self.rank.of > 1 and not self.side.is_sharded:
            self.called = DistributedDataParallel(model)
            self.called.forward = functools.wraps(model.forward)(calling(self.called.forward))

    def parts(self, data: PairData) -> list[PairData]:
        """Return the parts of each batch that this rank runs one after another."""
        switches = (f"accumulate = {self.side.accumulate}", f"devices = {self.side.devices}")
        cutting = " with ".join(each for each in switches if not each.endswith("= 1"))
        first = self.rank.number * self.side.accumulate
        return [data.part(first + i, self.side.parts, cutting) for i in range(self.side.accumulate)]

    def begin_part(self, number: int) -> None:
        """Let the masks be those of one of this rank's parts."""
        if self.side.parts > 1:
            self.masks.begin_part(Rows(self.rank.number * self.side.accumulate + number, 1, self.side.parts))

    def begin_call(self, given: Any) -> None:
        """Let the masks be those of the rows of the batch with which a step of the user's own calls the model."""
        if rows := rows_of(map(weights.array, flat(given)), self.batch):
            self.masks.begin_part(rows)

    def observed(self, model: nn.Module) -> AbstractContextManager[Any]:
        """Return a context in which each call of the model by a step of the user's own begins its part of the batch."""
        if self.is_plain or self.side.compile:  # which is called without hooks
            return nullcontext()
        return calls.observed({MODEL: model}, lambda call: self.begin_call((call.args, call.kwargs)), lambda *_: None)

    def unsynchronised(self, number: int) -> AbstractContextManager[None]:
        """Return a context without exchange of gradients for all parts but a rank's last one, as the guides have it."""
        is_last = number == self.side.accumulate - 1
        if self.side.is_sharded:
            self.called.set_requires_gradient_sync(is_last)
        is_alone = self.rank.of == 1 or self.side.is_sharded
        return nullcontext() if is_last or is_alone else self.called.no_sync()

    def mean(self, value: torch.Tensor) -> torch.Tensor:
        """Return the mean of a number over all ranks."""
        value = value.detach().clone()
        if self.rank.of > 1:
            dist.all_reduce(value)
            value /= self.rank.of
        return value

    def end(self) -> None:
        """Draw the masks of whole batches again."""
        self.batch = []
        self.masks.begin_part(None)

    def told(self, training: Training) -> Training:
        """Return how a side was trained and compiled, with its graph's breaks; BackendError if nothing was compiled."""
        if not self.side.compile:
            return training
        if not self._graphs:
            raise BackendError("torch.compile has made no graph of the model, which has run op by op")
        by = f"{self._by} ({count(self._graphs, 'graph')})"
        return replace(training, compiled=by, breaks=list(dict.fromkeys(self._breaks)))

    def _gathered(self, value: Any) -> list[Any]:
        values = [value] * self.rank.of
        if self.rank.of > 1:
            dist.all_gather_object(values, value)
        return values

    def _compile(self, model: nn.Module, at: str, promotions: list[str]) -> None:
        """Compile the model's calls. In the high run its graphs are promoted, as no mode is active where they run."""
        import torch._dynamo as dynamo  # takes a second to import

        dynamo.reset()
        # Without a compiler for inductor's kernels, a graph is compiled as autograd traces it.
        has_compiler = any(map(shutil.which, ("g++", "clang++"))) or torch.cuda.is_available()
        usual = "inductor" if has_compiler else "aot_eager"
        self._by = self.side.compile if isinstance(self.side.compile, str) else usual
        compile_graph = dynamo.lookup_backend(self._by)

        def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
            self._graphs += 1
            if at == HIGH:
                promote_graph(graph, promotions)
            return compile_graph(graph, inputs)

        # By itself dynamo skips what stands in torch's files, so that a model of torch's modules would run op by op.
        compiled = torch.compile(dynamo.external_utils.wrap_inline(model._call_impl), backend=backend)
        counted = dynamo.utils.counters["graph_break"]
        counted.clear()

        def called(*args: Any, **kwargs: Any) -> Any:
            if is_observed := calls.is_observed():
                self.begin_call((args, kwargs))
            with calls.untracked(), _without_modes(), _inlined(nn.functional.multi_head_attention_forward):
                outputs = compiled(*args, **kwargs)
            self._breaks += [reason.partition("\n")[0].strip() for reason in counted]  # further lines are advice
            if is_observed:
                self.on_outputs(outputs)
            return outputs

        model._compiled_call_impl = called


def _inlined(function: Callable[..., Any]) -> AbstractContextManager[Any]:
    """Return a context in which dynamo traces into a function of nn.functional, whose dropout one node would hide."""
    code = function.__code__.replace(co_filename=__file__)
    copied = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__)
    return mock.patch.object(nn.functional, function.__name__, copied)


@contextmanager
def _without_modes() -> Iterator[None]:
    """Take all function modes away within the block."""
    if torch._C._len_torch_function_stack():
        with _pop_mode_temporarily(), _without_modes():
            yield
    else:
        yield


def _checkpointed(forward: Callable[..., Any], masks: Masks) -> Callable[..., Any]:
    """Return a function that torch.utils.checkpoint runs again, with the masks and the modes of the first time."""

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), applied([masks.replaying(), *_get_current_function_mode_stack()])

    run = functools.partial(checkpoint, forward, use_reentrant=False, context_fn=contexts)
    return functools.wraps(forward)(calling(run))


class _CompiledMasks(Masks):
    """Masks, and other random numbers, that are drawn by ops, of which a compiler sees no more than the shape.

    It counts the draws in a tensor, so that no two of them are taken for the same, and their order is kept.
    """

    _drawing: "_CompiledMasks"

    @contextmanager
    def drawn(self, model: nn.Module, training: bool = True) -> Iterator[None]:
        _CompiledMasks._drawing = self
        with super().drawn(model, training):
            yield

    def dropped(self, x: torch.Tensor, rate: float) -> torch.Tensor:
        return x * _drawn(x.detach(), "", rate, DRAWS)

    def numbers(self, kind: str, x: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
        return _drawn(x.detach(), kind, 0.0, DRAWS)

    def now(self, x: torch.Tensor, kind: str, rate: float) -> torch.Tensor:
        """Return what the next draw gives, as `_drawn` does."""
        return super().numbers(kind, x, None) if kind else super().dropped(torch.ones_like(x), rate)


DRAWS = torch.zeros((), dtype=torch.int64)


@torch.library.custom_op("parity::drawn", mutates_args=("draws",))
def _drawn(x: torch.Tensor, kind: str, rate: float, draws: torch.Tensor) -> torch.Tensor:
    """Return random numbers of a kind for the elements of x; without one, what a dropout multiplies them with."""
    draws += 1
    return _CompiledMasks._drawing.now(x, kind, rate)


@_drawn.register_fake
def _(x: torch.Tensor, kind: str, rate: float, draws: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x, dtype=torch.float64 if kind else x.dtype)
