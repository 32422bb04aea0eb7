"""The optimizer of a pair's training: made, its settings for each parameter, and what a step with it is seen to do.

It is a built-in one that the pair's file names, or the user's own. Of a step is seen what it differentiates, and the
gradients.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import increment_version
from torch.optim import SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, NAdam, Optimizer, RMSprop
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from parity.config.schema import Case
from parity.core.errors import UsageError
from parity.core.patches import around
from parity.core.program import load
from parity.trace.training import ParameterGroup
from torch_impl import optimizers
from torch_impl.instruments.script_calls import announce
from torch_impl.record.pair.build import user_errors


def made(case: Case, parameters: Sequence[Any], search: list[str]) -> Optimizer:
    """Return a new optimizer of these parameters: the built-in one, or the one that the user's function makes.

    A scheduler that the function returns beside it is stepped after each step of the optimizer. Raises UsageError if
    the function returns something else.
    """
    text = case.model.train.torch_optimizer
    if not text:
        return optimizers.build(case, parameters)
    with user_errors(f"train.torch_optimizer={text} fails"):
        returned = load("train.torch_optimizer", text, "parameters", search=search)(parameters)
    match returned:
        case Optimizer():
            return returned
        case Optimizer() as optimizer, LRScheduler() as scheduler:
            optimizer.register_step_post_hook(lambda *_: scheduler.step())
            return optimizer
    parts = returned if isinstance(returned, tuple) else (returned,)
    received = ", ".join(type(part).__name__ for part in parts)
    expected = "a torch.optim.Optimizer, or one and its scheduler"
    raise UsageError(f"train.torch_optimizer={text}: expected {expected}, received {received}")


class Joint:
    """The optimizers of a training, of which a user's own step may have several, as one, in the order of parameters."""

    def __init__(self, optimizers: Iterable[Optimizer], parameters: Iterable[torch.Tensor]) -> None:
        order = {id(parameter): number for number, parameter in enumerate(parameters)}

        def first(optimizer: Optimizer) -> int:
            held = (id(each) for group in optimizer.param_groups for each in group["params"])
            return min((order[each] for each in held if each in order), default=len(order))

        self.optimizers = sorted(optimizers, key=first)
        self.first = self.optimizers[0]

    def groups(self, parameters: Mapping[str, Any]) -> list[ParameterGroup]:
        """Return the groups of all; none if the formula of one is not known."""
        parts = [groups(each, parameters) for each in self.optimizers]
        return [group for part in parts for group in part] if all(parts) else []

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for each in self.optimizers for group in each.param_groups]

    @property
    def state(self) -> dict[torch.Tensor, Any]:
        return {parameter: slots for each in self.optimizers for parameter, slots in each.state.items()}


def groups(optimizer: Optimizer, parameters: Mapping[str, Any]) -> list[ParameterGroup]:
    """Return the groups of an optimizer's parameters, by canonical names; none if its formula is not known.

    A class that is derived from a known one may do otherwise than its settings say.
    """
    stated = next((SETTINGS[kind] for kind in type(optimizer).__mro__ if kind in SETTINGS), None)
    if stated is None:
        return []
    names = {id(parameter): name for name, parameter in parameters.items()}
    made = [
        ParameterGroup(
            parameters=[names[id(parameter)] for parameter in group["params"] if id(parameter) in names],
            settings={name: value(group) if callable(value) else value for name, value in (SHARED | stated).items()},
        )
        for group in optimizer.param_groups
    ]
    return made if all(group.is_finite for group in made) else []


def rate(optimizer: Optimizer) -> float | None:
    """Return the learning rate of the next step; None if the optimizer has none that is a number."""
    number = float(optimizer.param_groups[0].get("lr", math.nan))
    return number if math.isfinite(number) else None


def is_scheduled(optimizer: Optimizer) -> bool:
    """Return whether a scheduler sets the learning rate: it marks the `step` of its optimizer."""
    return bool(getattr(optimizer.step, "_wrapped_by_lr_sched", False))


def _read(kind: type, *alike: str, **options: str) -> dict[str, Callable[[Any], Any]]:
    """Return how settings are read of a group, each of its option; those `alike` have the option's name."""
    named = dict(zip(alike, alike, strict=True)) | options
    return {name: lambda group, option=option: kind(group[option]) for name, option in named.items()}


# Settings, each fixed or read of a group of an optimizer: those of every class, then of each.
SHARED = {
    **_read(float, "weight_decay", learning_rate="lr"),
    "decay_form": lambda group: "decoupled" if group.get("decoupled_weight_decay") else "coupled",
    "sign": lambda group: -1 if group["maximize"] else 1,
}
BETAS = {
    "beta1": lambda group: float(group["betas"][0]),
    "beta2": lambda group: float(group["betas"][1]),
    **_read(float, epsilon="eps"),
}
OUTSIDE = {"epsilon_placement": "outside the root", **_read(float, epsilon="eps")}
ADAM = {"kind": "adam", **BETAS, **_read(bool, "amsgrad")}
SETTINGS = {
    SGD: {"kind": "sgd", **_read(bool, "nesterov"), **_read(float, "momentum", "dampening")},
    Adam: ADAM,
    AdamW: ADAM,
    NAdam: {"kind": "nadam", **BETAS, **_read(float, "momentum_decay")},
    Adamax: {"kind": "adamax", **BETAS, "epsilon_placement": "inside the maximum"},
    Adagrad: {
        "kind": "adagrad",
        **OUTSIDE,
        **_read(float, accumulator="initial_accumulator_value", rate_decay="lr_decay"),
    },
    Adadelta: {"kind": "adadelta", **_read(float, "rho", epsilon="eps")},
    RMSprop: {"kind": "rmsprop", **_read(bool, "centered"), **OUTSIDE, **_read(float, "momentum", rho="alpha")},
}
Gradients = dict[int, torch.Tensor]  # by id(parameter)


def gradients_of(parameters: Iterable[torch.Tensor]) -> Gradients:
    """Return the gradients that parameters hold."""
    return {id(each): each.grad.detach() for each in parameters if each.grad is not None}


def leaves(tensors: Iterable[torch.Tensor]) -> set[int]:
    """Return by id() every tensor that these were computed from and that takes a gradient, and these."""
    found, seen, nodes = set[int](), set[Any](), list[Any]()
    for tensor in tensors:
        found.add(id(tensor))
        nodes.append(tensor.grad_fn)
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            found.add(id(getattr(node, "variable", None)))
            nodes += [each for each, _ in node.next_functions]
    return found


class Before(NamedTuple):
    """What came before an optimizer's call: losses, writes by buffer, and by id() the parameters that losses read."""

    losses: int
    versions: dict[str, int]
    read: set[int]


def _count(optimizer: Optimizer, *_: Any) -> None:
    """Count a fused step in the versions of the parameters, as any other one does that moves them (torch 2.13)."""
    for group in optimizer.param_groups:
        if group.get("fused"):
            increment_version([each for each in group["params"] if each.grad is not None])


register_optimizer_step_post_hook(_count)


class StepObserver:
    """What is seen of a step of the user's own: `on_loss` is called with what each backward pass differentiates.

    The gradients are those that an optimizer applies, because such a step may clip, scale or accumulate them by itself;
    in a step that calls no optimizer, those that the backward pass left. `is_applied` says which they are.
    """

    def __init__(
        self,
        trained: Iterable[torch.Tensor],
        on_loss: Callable[[torch.Tensor], None] = lambda _: None,
        buffers: Mapping[str, torch.Tensor] = {},
    ) -> None:
        self.on_loss, self.losses = on_loss, []
        self.gradients: Gradients = {}
        self.is_applied = False
        self.rates: dict[Optimizer, float | None] = {}  # of those that update something, when they do
        self.before: list[Before] = []  # each of these
        self._buffers, self._read = buffers, set[int]()
        self._trained = {id(parameter): parameter for parameter in trained}
        self._scaled: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by id() of a scaled loss, which is kept

    @contextmanager
    def watched(self) -> Iterator[None]:
        """See what is done within the block."""
        with (
            around(torch.autograd, "backward", self._backward),
            around(torch.autograd, "grad", self._grad),
            around(torch.amp.GradScaler, "scale", self._scale),
            register_optimizer_step_pre_hook(self._on_update),
        ):
            yield

    def _backward(self, backward: Callable[..., None], tensors: Any, *args: Any, **kwargs: Any) -> None:
        self._note(tensors)
        backward(tensors, *args, **kwargs)
        if not self.is_applied:
            self._keep(self._trained.values())

    def _grad(self, grad: Callable[..., Any], outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        by = [inputs] if isinstance(inputs, torch.Tensor) else inputs
        if any(id(each) in self._trained for each in by):
            self._note(outputs)
        return grad(outputs, inputs, *args, **kwargs)

    def _scale(self, scale: Callable[..., Any], scaler: Any, outputs: Any) -> Any:
        larger = scale(scaler, outputs)
        if isinstance(outputs, torch.Tensor):
            self._scaled[id(larger)] = larger, outputs
        return larger

    def unscaled(self, loss: Any) -> Any:
        """Return a loss as it was before a GradScaler has scaled it."""
        return self._scaled.get(id(loss), (loss, loss))[1]

    def _note(self, differentiated: torch.Tensor | Sequence[torch.Tensor]) -> None:
        parts = [differentiated] if isinstance(differentiated, torch.Tensor) else list(differentiated)
        total = parts[0] if len(parts) == 1 else sum(part.sum() for part in parts)
        self._read |= leaves([total])
        loss = self.unscaled(total)
        self.losses.append(loss.detach())
        self.on_loss(loss)

    def _on_update(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Keep the gradients that an optimizer is about to apply; then what backward passes left counts no more."""
        if (later := announce(optimizer, args, kwargs)) is not None:
            return later
        if not self.is_applied:
            self.is_applied = True
            self.gradients.clear()
        if optimizer not in self.rates:
            self.rates[optimizer] = rate(optimizer)
            versions = {name: buffer._version for name, buffer in self._buffers.items()}
            self.before.append(Before(len(self.losses), versions, self._read))
            self._read = set()
        self._keep(parameter for group in optimizer.param_groups for parameter in group["params"])
        return None

    def _keep(self, parameters: Iterable[torch.Tensor]) -> None:
        held = gradients_of(each for each in parameters if id(each) in self._trained)
        self.gradients |= {key: each.clone() for key, each in held.items()}
