"""One run of a user's model: a forward and a backward pass, or some steps of training; recorded, or as a program."""

import functools
from collections.abc import Callable, Iterator, Set
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from parity.config.pair import CLIP, EPSILON
from parity.config.schema import Case
from parity.core.patches import applied, setting
from parity.data.pairs import PairData
from parity.pairs import script_records
from parity.runtime import survey
from parity.runtime.drive import Account, Program, Run
from parity.trace import manifest
from parity.trace.layout import Layout
from parity.trace.mapping import PairContext
from parity.trace.parts import Parts
from parity.trace.training import Turn
from torch_impl.instruments import devices, script_calls
from torch_impl.record import calls, precision
from torch_impl.record.pair import losses, values
from torch_impl.record.pair.build import Inputs, call, ready, tensors, user_errors
from torch_impl.record.pair.held import epsilons, norms, running_variances
from torch_impl.record.pair.optimizers import Joint, gradients_of, is_scheduled, rate
from torch_impl.record.pair.outputs import named
from torch_impl.record.pair.sides import Setup
from torch_impl.record.pair.training import Batch, Step, Training
from torch_impl.record.probe import Probe
from torch_impl.record.recorders import LayoutRecorder


def run(run: Run) -> Account:
    """Build the user's model anew, load the run's weights into it, and record what it does."""
    trained = script_records.known(run.pair.search)
    setup, machine = Setup(run.case, run.pair.side, trained.joined if trained else 1), devices.find(run.case)
    device = setup.device(machine.logical[0])
    run = run._replace(case=setup.side.trained(run.case), recorders={0: setup.recorder(run.recorders[0])})
    with precision.policy(run.at), precision.promoted(run.at) as promotions:
        model = ready(run.case, run.at, run.pair.search, device, promotions)
        values.load(model, run.weights, Path(run.pair.survey))
        setup.shard(model)
        with without_fast_paths(model):
            state = values.Weights(model)
            probe = Probe(run, model, state, LayoutRecorder(machine, replicas=1))
            setup.wrap(model, run.at, promotions)
            course = _Course(run, model, probe, device, setup)
            course.run()
    parameters = {name: [0] for name in state.trained}
    layout = Layout(devices=machine.names[:1], parameters=parameters)
    return Account(layout, probe.modules, promotions, probe.classes, course.training)


def without_fast_paths(model: nn.Module) -> AbstractContextManager[None]:
    """Return a context without the fast paths of transformer layers, whose inner modules would go unrecorded."""
    # cuDNN's recurrent kernels have no backward pass in inference mode.
    is_recurrent = any(isinstance(module, nn.RNNBase) for module in model.modules())
    kernels = [torch.backends.cudnn.flags(enabled=False, allow_tf32=False)] if is_recurrent else []
    return applied([fast_paths(False), *kernels])


def fast_paths(enabled: bool = True) -> AbstractContextManager[None]:
    """Return a context in which the fast path of transformer layers is on or off."""
    mha = torch.backends.mha
    return setting(mha.get_fastpath_enabled, mha.set_fastpath_enabled, enabled)


class _Course:
    """The sequence of passes and updates that one run consists of."""

    def __init__(self, run: Run, model: nn.Module, probe: Probe, device: torch.device, setup: Setup) -> None:
        self.model, self.probe, self.device, self.setup = model, probe, device, setup
        self.case, self.pair, self.data, self.at = run.case, run.case.model, run.dataset, run.at
        self.halves, self.recorder = run.pair, run.recorders[0]
        self.evaluates, self.training = run.pair.evaluates, manifest.Training()
        self.rates: list[float | None] = []  # of each step, and of the next one
        self._stepped: set[Optimizer] = set()
        self.masks = setup.masks.holding(self.pair)
        self._passes = 0  # forward passes of the current step
        self._recorded: dict[Optimizer, int] = {}  # tensors that were recorded in it before an optimizer was called

    def run(self) -> None:
        """Run the training and an evaluation; without [train] one inference, and back unless backward = false."""
        self.probe.on_step()
        if self.pair.train:
            self._train()
        self.model.eval()
        if self.pair.train or not self.pair.backward:
            self._forward(tensors(self.data.step(0), self.device))
        else:
            self._differentiate()
        self.training = self.setup.told(self.training)
        self.recorder.next_step()

    def _train(self) -> None:
        script_calls.train(self.model)
        if self.pair.train.torch_step:
            self.setup.on_outputs = self._record_outputs
        training = Training(
            self.case, self.model, self.data, self.halves, self.at, self._observed, self._record_outputs, self.setup
        )
        self._update_by({training.optimizer}, is_own=bool(self.pair.train.torch_optimizer))
        self.rates = [rate(training.optimizer)]
        # The masks around all steps, because they look through every loaded file.
        with (
            self.masks.drawn(self.model),
            running_variances(self.model, self.pair.holds_variance) as biased,
            epsilons(self.pair.accepts(EPSILON)) as moved,
            norms(self.pair.accepts(CLIP)) as clipped,
        ):
            for number in range(self.case.steps):
                batch = training.batch(number)
                if self.evaluates:  # call the model in inference, unobserved, as users do between two training steps
                    with calls.unobserved(), torch.no_grad():
                        call(self.model.eval(), self.pair, batch.inputs)
                    script_calls.train(self.model)
                training.step(batch, functools.partial(self._record_step, batch))
                self.probe.on_step()
                self.masks.on_step()
                self.rates.append(rate(self.updating.first))
        self.training = replace(
            self.training,
            own_step=bool(self.pair.train.torch_step),
            repeated=self.masks.repeats.places,
            held=sorted(biased),
            causes_held=[cause for cause, reached in ((EPSILON, moved), (CLIP, clipped)) if reached],
            rates=self.rates,
            is_scheduled=is_scheduled(self.updating.first),
        )

    def _update_by(self, optimizers: Set[Optimizer], is_own: bool = True) -> None:
        """Record from now on the state of these optimizers; if they are the user's own, their settings too."""
        self.updating = self.probe.weights.optimizer = Joint(optimizers, self.model.parameters())
        if is_own:
            groups = self.updating.groups(dict(self.model.named_parameters()))
            self.training = replace(self.training, groups=groups, rate=rate(self.updating.first))

    def _record_step(self, batch: Batch, step: Step) -> None:
        self._passes = 0
        if isinstance(self.recorder, Parts):
            self.recorder.join()
        for number, loss in enumerate(step.losses):
            self.probe.loss(loss, None if number else step.target)
        if step.rates.keys() - self._stepped:
            self._stepped |= step.rates.keys()
            if self._stepped != set(self.updating.optimizers):
                self._update_by(self._stepped)
        if (number := step.rates.get(self.updating.first)) is not None:
            self.rates[-1] = number
        if len(step.rates) > 1:
            self._take_turns(step)
        waiting = self.training.waiting if step.updates else [*self.training.waiting, batch.number]
        if step.updates and batch.number == len(waiting):  # the first update
            self.recorder.keep_state()
        self.training = replace(self.training, returns_loss=step.returns_loss, waiting=waiting)
        self.probe.gradients({}, step.gradients, step.applied)

    def _take_turns(self, step: Step) -> None:
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        turns, earlier, updated, done, recorded = list[Turn](), dict[str, int](), set[int](), 0, 0
        for optimizer, before in zip(step.rates, step.before, strict=True):
            held = [each for group in optimizer.param_groups for each in group["params"]]
            written = [name for name, count in before.versions.items() if earlier.get(name, count) != count]
            if before.read & updated:
                of_turn = [names[id(each)] for each in held if id(each) in names]
                of_turn += [name.rpartition(".")[0] for name in written]
                called = self.recorder.keys[recorded : self._recorded[optimizer]]
                turns.append(Turn(of_turn, list(range(done, before.losses)), called))
            earlier, updated, done = before.versions, {*updated, *map(id, held)}, before.losses
            recorded = self._recorded[optimizer]
        self.training = replace(self.training, turns=turns)

    @contextmanager
    def _observed(self, inputs: list[torch.Tensor]) -> Iterator[None]:
        """Record the forward passes of a step within the block; the user's own may have several."""
        if isinstance(self.recorder, Parts):
            self.recorder.begin()
        self.setup.begin_part(self._passes)
        self._passes += 1
        self._recorded.clear()

        def on_update(optimizer: Optimizer, *_: Any) -> None:
            self._recorded.setdefault(optimizer, len(self.recorder.keys))

        on_outputs = self._record_outputs if self.pair.train.torch_step else None
        with register_optimizer_step_pre_hook(on_update), self.probe.forward(inputs, on_outputs):
            yield

    def _differentiate(self) -> None:
        """Run a forward pass in inference mode, and the backward pass of a fixed weighted sum of the outputs."""
        inputs = tensors(self.data.step(0), self.device)
        for each in inputs.values():
            each.requires_grad_(each.is_floating_point())
        scalar = losses.probe(self._forward(inputs), self.data)
        self.probe.loss(scalar, None)
        if scalar.requires_grad:
            with user_errors(f"torch={self.pair.torch}: backward fails"):
                scalar.backward()
        self.probe.gradients(inputs, gradients_of(self.model.parameters()))

    def _forward(self, inputs: Inputs) -> list[torch.Tensor]:
        """Call the model, which gets copies of the inputs, since it may modify them in place; return its outputs."""
        copies = {name: tensor.clone() for name, tensor in inputs.items()}
        self.setup.end()
        self.setup.on_outputs = lambda _: None
        with precision.autocast(self.at, self.device.type):
            with self.probe.forward(self.pair.shared(copies)), self.masks.drawn(self.model, training=False):
                outputs = call(self.model, self.pair, copies)
            return self._record_outputs(outputs)

    def _record_outputs(self, outputs: Any) -> list[torch.Tensor]:
        by_name = named(self.pair, outputs)
        self.probe.outputs(by_name)
        return [tensor for _, tensor in by_name]


def program(case: Case, halves: PairContext) -> Program:
    """Return the model with the pair's weights, its inputs repeated, its training. Raises UsageError, BackendError."""
    pair, data, device = case.model, PairData(case, halves.search), devices.find(case).logical[0]
    model = ready(case, case.precision, halves.search, device, [])
    values.load(model, survey.Initial(Path(halves.survey)), Path(halves.survey))
    inputs = tensors(data.step(0), device)
    mixed = precision.autocast(case.precision, device.type)

    def infer(batches: Iterator[Inputs], on_step: Callable[[], None]) -> None:
        model.eval()
        for batch in batches:
            with torch.no_grad(), mixed:
                call(model, pair, batch)
            on_step()

    def train(batches: Iterator[Inputs], on_step: Callable[[], None]) -> None:
        script_calls.train(model)
        training = Training(case, model, data, halves, case.precision)
        for batch in batches:
            training.step(Batch(0, batch))
            on_step()

    return Program(model, iter([inputs]), train if pair.train else infer)
