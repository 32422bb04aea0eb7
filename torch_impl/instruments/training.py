"""How a step trains: its backward passes, their gradients, the optimizers, and float16 with loss scaling."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer, optimizer

from parity.core.ownership import first_argument
from parity.core.patches import applied, around
from parity.doctor import rewrite
from parity.doctor.evidence import Backward, Code, Gradient, Made, Step
from parity.doctor.evidence import Optimizer as Seen
from torch_impl.instruments import source, values
from torch_impl.instruments.build import Building
from torch_impl.instruments.calls import Calls
from torch_impl.instruments.graphs import Graphs, feeds
from torch_impl.instruments.ops import Cuts
from torch_impl.instruments.origins import Origins
from torch_impl.instruments.ranks import Replicas
from torch_impl.instruments.structure import inner
from torch_impl.instruments.updates import Events, Unused
from torch_impl.record.calls import running

# States of a gradient. If it was looked at several times, the one that stands last here counts.
STATES = ("none", "zero", "finite", "not_finite")
SCALES = ("MulBackward", "DivBackward")


class Training:
    def __init__(self, model: nn.Module, building: Building, calls: Calls, origins: Origins, cuts: Cuts):
        self.model, self.building, self.calls, self.origins = inner(model), building, calls, origins
        self.cuts = cuts
        self.names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        self.graphs = Graphs()
        self.replicas = Replicas(self.model)
        self.unused = Unused(self._slower)

    @contextmanager
    def watched(self, step: Step, reached: Callable[[Any], None]) -> Iterator[None]:
        """Record what happens within the block; `reached` gets the losses, and gradients that are not finite."""
        self.step, self.reached = step, reached
        self.replicas.begin(step)
        self._states = dict.fromkeys(self.names.values(), "none")
        self._fresh = False  # there are gradients that have not been looked at
        self._stepped: dict[Optimizer, None] = {}
        # By optimizer, of the update that grew most: the learning rate, and the parameters' size before and after it.
        self._growth: dict[Optimizer, dict[str, float]] = {}
        self._events = Events(step)
        self._updates = 0
        self._made: list[tuple[torch.Tensor, Made]] = []  # parameters that modules made in their calls
        self._unscaled: list[tuple[torch.Tensor, torch.Tensor]] = []  # losses after and before a GradScaler scaled them
        with applied(self._patches()):
            yield

    def finish(self) -> None:
        self._look_at_gradients()
        self.step.gradients += [Gradient(parameter=name, state=state) for name, state in self._states.items()]
        self.step.optimizers += map(self._seen, self.building.optimizers)
        self.step.half = self.step.half or self._half_parameters()
        self.graphs.finish(self.step)
        self._unscaled.clear()

    def _patches(self) -> list[Any]:
        return [
            self.building.noting_optimizers(),
            around(torch.autograd, "_engine_run_backward", self._backward),
            around(Optimizer, "zero_grad", self._clear),
            around(nn.Module, "zero_grad", self._clear),
            around(nn.Parameter, "__new__", self._make_parameter),
            around(GradScaler, "scale", self._scale),
            around(GradScaler, "step", self._scaled_update),
            around(GradScaler, "unscale_", self._unscale),
            around(torch.autocast, "__enter__", self._autocast),
            *self._events.patches(),
            optimizer.register_optimizer_step_pre_hook(self._on_update),
            optimizer.register_optimizer_step_post_hook(self._on_updated),
        ]

    def _backward(self, run: Callable[..., Any], roots: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a backward pass and record it, with the parameters whose earlier gradients it adds to."""
        if self.calls.phase == "backward":
            return run(roots, *args, **kwargs)  # a checkpoint's own backward pass, within the outer one
        scaled = any(map(self._is_scaled, roots))
        self._events.note("backward")
        self._events.scaled = any(root is scaled_root for root in roots for scaled_root, _ in self._unscaled)
        record = Backward(source=source.line(), scaled=scaled, kept=[], updates=self._updates)
        record.optimizer = rewrite.first_name(source.frame(), self.building.optimizers, "optimizer")
        record.divided = _divided()
        record.update = f"{record.optimizer}.step()"
        if len(optimizers := self.building.optimizers) > 1:
            owners = {id(parameter): str(i) for i, each in enumerate(optimizers) for parameter in _held(each)}
            record.feeds = sorted(map(list, feeds([root.grad_fn for root in roots], owners)))
        self.step.backwards.append(record)
        self._fresh = True
        self.replicas.note_use()
        parameters = list(self.model.named_parameters())
        graded = [(name, parameter.grad) for name, parameter in parameters]
        earlier = {name: (grad, grad._version) for name, grad in graded if values.state(grad) in values.VALUED}
        self.reached(roots)
        for root in roots:
            self.origins.note(root, "loss")
            self.graphs.note_root(root, self.calls.place(record.source))
            self.cuts.integers.explain(source.frame(), root)
        with self.calls.within("backward", "update" if self.calls.phase == "update" else "other"):
            results = run(roots, *args, **kwargs)
        self.replicas.note_gradients()
        self.unused.note_computed(self._trained())
        self._note_made()
        for name, parameter in parameters:
            gradient, version = earlier.get(name, (None, 0))
            if gradient is not None and (parameter.grad is not gradient or gradient._version != version):
                record.kept.append(name)
        return results

    def _clear(self, clear: Callable[..., Any], owner: Any, *args: Any, **kwargs: Any) -> Any:
        self._look_at_gradients()
        self._events.note("clear")
        with self.unused.clearing(self._trained(), self.step.events):
            return clear(owner, *args, **kwargs)

    def _make_parameter(self, make: Callable[..., Any], kind: type, *args: Any, **kwargs: Any) -> Any:
        """Note a parameter that is made while a module is called, at the line of that module's own code."""
        parameter, modules = make(kind, *args, **kwargs), running()
        own = (frame for frame in source.frames() if modules and first_argument(frame) is modules[-1])
        if frame := next(own, None):
            place = self.calls.place(rewrite.shown(frame.f_code.co_filename, frame.f_lineno))
            made = rewrite.expression(rewrite.spot(frame))
            self._made.append((parameter, Made(kind=made.function if made else "", parameters=0, place=place)))
        return parameter

    def _note_made(self) -> None:
        """Record the new parameters that a backward pass reached, but for those that an optimizer holds."""
        held = {id(parameter) for optimizer in self.building.optimizers for parameter in _held(optimizer)}
        by_line = {made.place.source: made for _, made in reversed(self._made)}  # what a line makes first, it names
        for parameter, made in self._made:
            if parameter.grad is not None and id(parameter) not in held:
                by_line[made.place.source].parameters += 1
        self.step.made += [made for made in by_line.values() if made.parameters]
        self._made.clear()

    def _scale(self, scale: Callable[..., Any], scaler: GradScaler, outputs: Any) -> Any:
        scaled = scale(scaler, outputs)
        if scaler.is_enabled():
            self.step.loss_scaled = True
            if isinstance(outputs, torch.Tensor):
                self._unscaled.append((scaled, outputs))
        return scaled

    def _scaled_update(self, update: Callable[..., Any], scaler: GradScaler, *args: Any, **kwargs: Any) -> Any:
        """Note the update; a GradScaler itself skips the optimizer if a gradient is not finite."""
        stepping = args[0] if args else kwargs["optimizer"]
        self._events.note_scaled_update(scaler, stepping)
        self._note_step(stepping)
        return update(scaler, *args, **kwargs)

    def _unscale(self, unscale: Callable[..., Any], scaler: GradScaler, *args: Any, **kwargs: Any) -> Any:
        if scaler.is_enabled() and source.direct():
            self._events.scaled = False
            self._events.note("unscale")
        return unscale(scaler, *args, **kwargs)

    def _autocast(self, enter: Callable[..., Any], context: torch.autocast) -> Any:
        if context._enabled and context.fast_dtype == torch.float16:
            self.step.half = self.step.half or source.line()
        return enter(context)

    def _on_update(self, stepping: Optimizer, *_: Any) -> None:
        self._note_step(stepping)
        self._look_at_gradients()
        self.replicas.note_updating()
        self.calls.phase = "update"
        self.unused.note_updating(stepping, _held(stepping), self.step)
        self._size = values.root_mean_square(_held(stepping))

    def _on_updated(self, stepping: Optimizer, *_: Any) -> None:
        self._updates += 1
        self.unused.note_updated(_held(stepping))
        self.replicas.note_updated()
        self.calls.phase = "other"
        rate = float(stepping.param_groups[0].get("lr") or 0)
        size_before, size_after = self._size, values.root_mean_square(_held(stepping))
        most = self._growth.get(stepping, {"before": 1.0, "after": 0.0})
        if not size_after * most["before"] <= most["after"] * size_before:  # written so that NaN counts as growth
            self._growth[stepping] = {"rate": rate, "before": size_before, "after": size_after}

    def _note_step(self, stepping: Optimizer) -> None:
        if stepping not in self._stepped or self.step.events[-1].what != "update":
            self._events.note("update")
        self._stepped[stepping] = None
        self.building.optimizers.setdefault(stepping, "")
        if self.step.backwards:
            number, last = str(list(self.building.optimizers).index(stepping)), self.step.backwards[-1]
            for record in reversed(self.step.backwards):
                if record.updated and record is not last:
                    break
                record.updated.append(number)

    def _trained(self) -> list[torch.Tensor]:
        """Return the parameters of the model, and those that an optimizer holds besides."""
        every = [*self.model.parameters(), *(one for optimizer in self.building.optimizers for one in _held(optimizer))]
        return list({id(one): one for one in every}.values())

    def _look_at_gradients(self) -> None:
        """Note the state of the gradients, if there was a backward pass since the last look."""
        is_fresh, self._fresh = self._fresh, False
        for name, parameter in self.model.named_parameters() if is_fresh else ():
            state = values.state(parameter.grad)
            self._states[name] = max(state, self._states.get(name, "none"), key=STATES.index)
            if state != "none":
                self.origins.note(parameter.grad, "gradient")
            if state == "not_finite":
                self.reached(parameter.grad)

    def _is_scaled(self, root: torch.Tensor) -> bool:
        """Return whether the loss was multiplied or divided by a number, apart from what a GradScaler did."""
        if root.numel() > 1:
            return True  # a pipeline stage's output, whose loss was on another rank: assume that it was scaled
        root = next((original for scaled, original in self._unscaled if scaled is root), root)
        node = root.grad_fn
        if node is None or not node.name().startswith(SCALES):
            return False
        return sum(original is not None for original, _ in node.next_functions) == 1

    def _seen(self, optimizer: Optimizer) -> Seen:
        kind, line, stepped = type(optimizer).__name__, self.building.optimizers[optimizer], optimizer in self._stepped
        names = [self.names[id(parameter)] for parameter in _held(optimizer) if id(parameter) in self.names]
        slower, growth = self._slower(optimizer), self._growth.get(optimizer, {})
        return Seen(kind=kind, source=line, parameters=names, stepped=stepped, slower=slower, **growth)

    def _slower(self, optimizer: Optimizer) -> Code | None:
        return rewrite.code(self.building.spots.get(optimizer), lambda made: made.with_keyword("lr", "1e-3", 1))

    def _half_parameters(self) -> str:
        for module in self.model.modules():
            own = module.parameters(recurse=False)
            if any(parameter.dtype == torch.float16 and parameter.requires_grad for parameter in own):
                return self.building.half or self.building.lines.get(module, "")
        return ""


def _held(optimizer: Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _divided() -> str:
    """Return the user's line with its loss divided by a placeholder {}."""
    call = rewrite.expression(source.spot())
    loss = call.operand() if call else None
    divided = call.with_text(loss, f"({call.text(loss)} / {{}})") if call and loss is not None else None
    return divided.fix if divided else ""
