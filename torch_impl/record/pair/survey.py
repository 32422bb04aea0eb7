"""Surveys the user's PyTorch model: its modules and weights, what each returns in one pass, and the initial values.

Both sides start from these initial values. They are the model's own at the run's precision; constant buffers (such as
tables) and the modules' outputs are in float64. Of a script is seen what it trains on: the inputs of its model and of
its loss in the first steps.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace
from torch import nn

from parity.config.pair import UNUSED
from parity.config.schema import Case
from parity.core import precision as precisions
from parity.core import program
from parity.core.arrays import digest
from parity.data.pairs import PairData
from parity.pairs.script_records import Trained, write
from parity.runtime import survey as files
from parity.runtime.job import BatchesJob, SurveyJob
from parity.runtime.survey import Law, Module, Survey, Weight
from parity.trace.summary import LARGE
from parity.trace.tensorfile import Writer
from torch_impl.instruments import devices
from torch_impl.instruments.script_calls import dense
from torch_impl.record import calls, lowered, precision, tree, weights
from torch_impl.record.masks import Masks
from torch_impl.record.pair import values
from torch_impl.record.pair.build import call, ready, tensors, user_errors
from torch_impl.record.pair.outputs import describe_returned, flat, named, unnamed
from torch_impl.record.pair.rehearsal import rehearse, unused, without_dropping
from torch_impl.record.pair.run import without_fast_paths
from torch_impl.record.pair.sources import Sources
from torch_impl.record.weights import COUNTER, STATISTICS


def survey(job: SurveyJob) -> None:
    """Write the survey of torch's half. Raises UsageError and BackendError if its model cannot be built or called."""
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    device = devices.find(job.case).logical[0]
    if job.seeds:
        files.keep(folder / files.DRAWN, _drawn(job, device))
        return
    initial, keeps = files.writer(folder / files.WEIGHTS), job.case.model.keeps_weights
    laws: dict[str, Law] = {}
    has_frozen, copies = _write_start(job, device, initial, folder, laws)
    sources = Sources()
    with precision.policy(precisions.HIGH), precision.promoted(precisions.HIGH) as promotions:
        with sources.recorded():
            model = ready(job.case, precisions.HIGH, job.pair.search, device, promotions, surveyed=has_frozen or keeps)
        files.keep(folder / files.EXACT, values.untrained(model))
        for name, array in values.started(model, job.case) if keeps else ():
            initial.add(name, array)
        for name, buffer in values.constants(model).items():
            initial.add(name, weights.array(buffer))
        initial.close()
        values.load(model, files.Initial(folder), folder)
        forward_pass = _Pass(folder)
        inputs = PairData(job.case, job.pair.search).step(0)
        with without_fast_paths(model):  # with gradients, as a model may compute some in its forward pass
            with without_dropping(model.eval(), job.case, training=False):
                forward_pass.run(model, job.case, tensors(inputs, device))
            rehearsal = rehearse(model, job.case, tensors(inputs, device))
            idle = unused(model, job.case, tensors(inputs, device))
    described = _described(model, forward_pass, sources)
    files.write(folder, replace(described, rehearsal=rehearsal, unused=idle, laws=laws, copies=copies))


def _write_start(
    job: SurveyJob, device: torch.device, initial: Writer, folder: Path, laws: dict[str, Law]
) -> tuple[bool, list[str]]:
    """Write the initial values of parameters and statistics, unless they are kept.

    Returns whether some parameters are frozen, and what begins as a copy of trained ones (Survey.copies). The laws of
    those that are drawn anew are noted in `laws`.

    The model is freed on return: two models at a time may not fit into memory.
    """
    with precision.policy(job.case.precision):
        model = ready(job.case, job.case.precision, job.pair.search, device, [], surveyed=True)
    files.keep(folder / files.BUILT, values.untrained(model))
    redrawn = {name for name, parameter in model.named_parameters() if parameter.requires_grad} if job.redraws else ()
    for name, array in values.started(model, job.case) if not job.case.model.keeps_weights else ():
        if name in redrawn and array.size > LARGE and np.isfinite(array).all():
            laws[name] = Law.of(array)
            array = laws[name].drawn(job.case.seed, name, array.shape, job.case.precision)
        initial.add(name, array)
    trained = [each for each in model.parameters() if each.requires_grad]
    return len(trained) < len(list(model.parameters())), files.copies(values.untrained(model), trained, weights.array)


def _drawn(job: SurveyJob, device: torch.device) -> Iterator[tuple[str, np.ndarray]]:
    """Build the model with each seed, and yield what the builder gave to the job's tables."""
    for number, seed in enumerate(job.seeds):
        case = replace(job.case, seed=seed)
        with precision.policy(case.precision):
            model = ready(case, case.precision, job.pair.search, device, [], surveyed=True)
        for name, array in values.untrained(model):
            if not job.tables or name in job.tables:
                yield f"{number}:{name}", array


class _Pass(files.Pass):
    """One observed forward pass: modules in the order of their calls, with their inputs and outputs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.called: dict[str, list[tuple[int, ...]]] = {}  # with the shapes of what a module is given at first

    def run(self, model: nn.Module, case: Case, inputs: dict[str, torch.Tensor]) -> None:
        """Call the model, and record what its modules are given and return."""
        with calls.observed(tree.called(model), self._on_call, self._on_return):
            outputs = call(model, case.model, inputs)
        for name, output in named(case.model, outputs):
            self.add("", weights.array(output), name)
        self.unnamed = unnamed(case.model, outputs)
        self.returned = describe_returned(case.model, outputs)
        self.close()

    def _on_call(self, call: calls.Call) -> None:
        passed = tree.passed(call.module, call.args, call.kwargs)
        self.called.setdefault(call.path, [values.shape(tensor) for tensor in passed])

    def _on_return(self, call: calls.Call, outputs: Any) -> None:
        for output in flat(outputs) if call.path else ():
            self.add(call.path, weights.array(output))


def _described(model: nn.Module, seen: _Pass, sources: Sources) -> Survey:
    """Return the survey of a model after a pass, with the lines that made its modules."""
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    named_weights = {name: tensor for name, tensor in {**parameters, **buffers}.items() if not name.endswith(COUNTER)}
    first = {id(tensor): name for name, tensor in named_weights.items()}  # of a weight that has several
    every = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return Survey(
        side="torch",
        modules=[
            Module(path=name, kind=tree.kind(module), facts=tree.facts(module), made=sources.of(module))
            for name, module in tree.named(model).items()
        ],
        weights=[
            _weight(name, tensor, name in parameters, name in parameters and _is_chosen(model, name, tensor, sources))
            for name, tensor in named_weights.items()
        ],
        called=list(seen.called),
        tied={name: first[id(tensor)] for name, tensor in every if id(tensor) in first and name not in named_weights},
        outputs=seen.outputs,
        unnamed=seen.unnamed,
        arguments={path: shapes for path, shapes in seen.called.items() if shapes},
        returned=seen.returned,
    )


def _is_chosen(model: nn.Module, name: str, parameter: torch.Tensor, sources: Sources) -> bool:
    """Return whether the user's code gave a frozen parameter its values: after its module was made, or in its class."""
    owner = model.get_submodule(name.rpartition(".")[0])
    is_of_torch = type(owner).__module__.startswith("torch.")
    return not parameter.requires_grad and (not is_of_torch or bool(sources.is_changed(parameter)))


def _weight(name: str, tensor: torch.Tensor, parameter: bool, chosen: bool) -> Weight:
    module, _, role = name.rpartition(".")
    return Weight(
        name=name,
        shape=values.shape(tensor),
        dtype=str(tensor.dtype).removeprefix("torch."),
        module=module,
        role=role,
        trainable=parameter and tensor.requires_grad,
        statistic=not parameter and role in STATISTICS,
        constant=not parameter and role not in STATISTICS,
        chosen=chosen,
    )


def batches(job: BatchesJob) -> None:
    """Run the script for the case's steps, and write its batches into the job's folder.

    Raises UsageError if it does not train as a pair is trained, and BackendError for what it raises itself.
    """
    text, arrays, ends = job.case.model.torch, dict[str, np.ndarray](), dict[str, str]()
    program.begin_anew(job.case.seed)
    torch.manual_seed(job.case.seed)
    script, masks = program.find("torch", text, job.pair.search), Masks(job.case.seed, 0, ordered=True)
    run, is_alone = script.__self__, job.case.model.keras == UNUSED
    with user_errors(f"torch={text} fails"), lowered.defaults():
        model = script()
        with masks.drawn(model) if is_alone else nullcontext():  # as it is recorded, to be compared with that
            for number, given in enumerate(run.batches(job.case.steps)):
                arrays |= {f"{name}@{number}": dense(each).detach().cpu().numpy() for name, each in given.items()}
                masks.on_step()
                if is_alone and number == job.case.steps - 1:
                    ends = {name: digest([(name, weights.array(each))]) for name, each in run.parameters()}
    run.close()
    arrays |= {key: each.cpu().numpy() for key, each in run.fetches.arrays()}
    trained = Trained(
        inputs=[],
        asked=job.case.steps,
        unlike=number if run.has_unlike else 0,
        epoch=run.fetches.epoch,
        in_evaluation=run.in_evaluation,
        outputs=run.outputs,
        fetched=run.fetches.described(),
        chain=run.chain(),
        early=run.early(),
        is_distributed=run.is_distributed,
        has_copies=bool(run.copies),
        labels=run.labels,
        compared=run.compared,
        carried=sorted(run.carried),
        ends=ends,
        sizes=[each.numel() for each in model.state_dict().values()],
        beside=run.beside.described(run.fetches.number, run.copies),
        of_beside=run.beside.names,
        outside=run.outside(),
        every=run.every,
    )
    write(Path(job.folder), trained, arrays)
