"""Surveys the user's Keras model: its layers and weights, and what each layer returns in one pass.

Once a mapping is known, the pass runs with torch's weights in the mapped variables. Of a script is seen what it trains
on: the first batch that `fit` would give to its model.
"""

import contextlib
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.models.functional import Functional
from msgspec.structs import replace

from keras_impl.instruments.script_callbacks import is_run, steps_of
from keras_impl.instruments.script_data import fits
from keras_impl.instruments.uncalled import calls_of_step, is_uncalled, let_call
from keras_impl.record import calls, lowered, precision, tree, weights
from keras_impl.record.pair import build, layers, values
from keras_impl.record.pair.build import is_overridden, user_errors
from keras_impl.record.pair.first_call import ready
from keras_impl.record.pair.outputs import describe_returned, flat, named, ordered
from keras_impl.record.pair.rehearsal import rehearse, still, unused, without_dropping
from keras_impl.record.pair.sources import Sources, noted_at_creation
from parity.config.pair import UNUSED, Pair
from parity.config.schema import Case
from parity.core import program
from parity.core.precision import HIGH
from parity.data.pairs import PairData
from parity.pairs.causes.sources import shown
from parity.pairs.script_records import Fetched, Shapes, Trained, write
from parity.runtime import survey as surveys
from parity.runtime.job import BatchesJob, SurveyJob
from parity.runtime.returned import Path as Keys
from parity.trace.keys import MODEL


def survey(job: SurveyJob) -> None:
    """Write the survey of Keras's half. Raises UsageError and BackendError if its model cannot be built or called."""
    pair, halves, folder = job.case.model, job.pair, Path(job.folder)
    if job.seeds:
        surveys.keep(folder / surveys.DRAWN, _drawn(job))
        return
    keras.utils.clear_session()
    given = PairData(job.case, halves.search).step(0)
    with precision.policy(HIGH), precision.promoted(HIGH):
        model, sources, created = _built(job, given)
        inputs = build.tensors(pair, given)
        if job.needless is not None:
            surveys.write(folder, _needless(model, job.case, inputs, job.needless))
            return
        surveys.keep(folder / surveys.BUILT, values.untrained(model))  # before torch's values are loaded
        trained = [held.variable for held in layers.variables(model) if held.description.trainable]
        copies = surveys.copies(values.untrained(model), trained, weights.array)
        if not halves.survey:  # of a model that is compared with itself
            surveys.keep(folder / surveys.WEIGHTS, values.started(model, job.case))
        keys: list[Keys] = []
        if halves.mapping:
            torch = Path(halves.survey)
            reference = surveys.read(torch)
            keys = reference.keys(training=False)
            values.Weights(model, halves.mapping, reference, surveys.Initial(torch)).load()
        forward_pass = _Pass(folder)
        with without_dropping(model, job.case, training=False):
            outputs = forward_pass.run(model, pair, inputs, keys)
        rehearsal = surveys.Rehearsal() if halves.mapping else rehearse(model, job.case, inputs)
    surveys.write(
        folder,
        replace(
            _described(model, forward_pass, sources),
            rehearsal=rehearsal,
            returned=describe_returned(pair, outputs),
            is_mode_lost=isinstance(model, keras.Model) and not model._call_has_training_arg,
            overridden=[name for name in CALLED if build.is_overridden(model, name)],
            optimizer=_optimizer(pair, halves.search, sources),
            created=_in_order(model, created),
            outside=list(_outside(model, sources)),
            copies=copies,
        ),
    )


def _needless(model: Any, case: Case, inputs: dict[str, tf.Tensor], alone: list[str]) -> surveys.Survey:
    """Return a survey that tells only on which weights nothing depends.

    `alone`: those without a counterpart. Zeros that training cannot move are looked for if it is not all of these.
    """
    idle = unused(model, case, inputs)
    zeros = still(model, case, inputs) if set(alone).difference(idle) else []
    return surveys.Survey(side="keras", modules=[], weights=[], called=[], unused=idle, still=zeros)


CALLED = ("predict", "predict_step", "predict_on_batch", "evaluate", "test_step", "test_on_batch", "train_on_batch")


def _built(job: SurveyJob, given: dict[str, np.ndarray]) -> tuple[Any, Sources, dict[int, int]]:
    """Build the model, and return it with the lines that made its layers, and their numbers in order of creation.

    The initial values of variables that are frozen are part of the model, and then drawn whole.
    """
    attempts: list[tuple[Sources, dict[int, int]]] = []  # of building the model, of which the last one counts

    @contextmanager
    def watched() -> Iterator[None]:
        sources = Sources()
        with sources.recorded(), noted_at_creation(itertools.count().__next__) as created:
            attempts.append((sources, created))
            yield

    model = ready(job.case, HIGH, job.pair.search, given, watched)
    described = [held.description for held in layers.variables(model)]
    # One that was created to be trained and is not: its initial values are what it is.
    if any(not (each.trainable or each.fixed or each.statistic) for each in described):
        model = ready(job.case, HIGH, job.pair.search, given, watched, surveyed=True)
    return model, *attempts[-1]


def _drawn(job: SurveyJob) -> Iterator[tuple[str, np.ndarray]]:
    """Build the model with each seed, and yield what the builder gave to the job's tables."""
    given = PairData(job.case, job.pair.search).step(0)
    for number, seed in enumerate(job.seeds):
        keras.utils.clear_session()
        with precision.policy(HIGH), precision.promoted(HIGH):
            model = ready(replace(job.case, seed=seed), HIGH, job.pair.search, given, surveyed=True)
        for name, array in values.untrained(model):
            if not job.tables or name in job.tables:
                yield f"{number}:{name}", array


def _outside(model: Any, sources: Sources) -> Iterator[str]:
    """Yield the layers with weights that the builder has made and left out of the model, each with its line.

    Such a layer was called on a constant, while the model was built: the model keeps what it returned.
    """
    own = {id(variable) for layer in tree.named(model).values() for variable in getattr(layer, "variables", ())}
    for layer, made in sources.layers():
        is_leaf = len(tree.named(layer)) == 1
        if layer.weights and is_leaf and own.isdisjoint(map(id, layer.weights)):
            yield f"{layer.name} ({type(layer).__name__}, {shown(made.source)})"


def _in_order(model: Any, created: dict[int, int]) -> list[str]:
    """Return the paths of the layers in the order of their creation; `created` holds their numbers by id()."""
    paths = {path: created[id(layer)] for path, layer in tree.named(model).items() if id(layer) in created}
    return sorted(paths, key=lambda path: paths[path])


def _optimizer(pair: Pair, search: list[str], sources: Sources) -> surveys.Made | None:
    """Return where the user's own optimizer is made; None if the pair has none."""
    text = pair.train.keras_optimizer if pair.train else ""
    if not text:
        return None
    with build.user_errors(f"train.keras_optimizer={text} fails"), sources.recorded():
        return sources.of(program.load("train.keras_optimizer", text, search=search)())


class _Pass(surveys.Pass):
    """One observed forward pass: layers in the order of their calls, with the shapes of their first inputs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.called: dict[str, list[tuple[int, ...]]] = {}

    def run(self, model: Any, pair: Pair, inputs: dict[str, tf.Tensor], keys: list[Keys]) -> Any:
        """Call the model, record what its layers are given and return, and return what it returns."""
        with calls.observed(tree.inner(model), lambda _: None, self._on_return):
            outputs = build.call(model, pair, inputs)
        for name, tensor in named(pair, ordered(outputs, keys)):
            self.add(MODEL, weights.array(tensor), name)
        self.close()
        return outputs

    def _on_return(self, call: calls.Call, outputs: Any) -> None:
        """Record one call of a layer; while a graph is traced there are no values."""
        if tf.executing_eagerly():
            self.called.setdefault(call.path, [tuple(tensor.shape) for tensor in call.tensors])
            for tensor in flat(outputs):
                self.add(call.path, weights.array(tensor))


def _described(model: Any, seen: _Pass, sources: Sources) -> surveys.Survey:
    """Return the survey of a model after a pass, with the lines that made its layers."""
    leaves = tree.leaves(model)
    return surveys.Survey(
        side="keras",
        modules=layers.modules(model, sources),
        weights=[held.description for held in layers.variables(model, sources)],
        called=list(seen.called),
        tied=layers.tied(model),
        outputs=seen.outputs,
        arguments={path: shapes for path, shapes in seen.called.items() if path in leaves},
    )


def _outputs(model: Any, fit: Any, is_loop: bool) -> Shapes:
    """Return the shapes of what a script's model returns, by name or number; none for a loop's, which calls it."""
    if is_uncalled(model) and fit.y is None:
        let_call(model, None)
        with precision.eagerly():
            return {number: list(each.shape) for number, each in enumerate(model(fit.x))}
    return {} if is_loop else _of_single(model, fit.x)


def _chain_of_step(model: Any, fit: Any, of_step: Any) -> Fetched | None:
    """Return the layers that a train_step calls one by one, of a model without `call` that is trained on a target.

    They are given the model's inputs, and what those before them return, alone.
    """
    if not of_step or not is_uncalled(model) or fit.y is None:
        return None
    chain = next((each for each in of_step[0].inner if len(each.calls) > 1), None)
    given = {number for each in chain.calls for number in each.numbers("tensor")} if chain else set()
    return chain if len(given) <= len(fit.inputs) else None


def _of_chain(chain: Fetched | None) -> Shapes:
    """Return the shapes of what layers return that are called one by one, but for what others of them are given."""
    returned = chain.returned if chain else []
    return dict(enumerate(returned)) if len(returned) != 1 else {"": returned[0]}


def batches(job: BatchesJob) -> None:
    """Run the script up to its call of `fit`, and write its first batch into the job's folder.

    Those of all steps, by NAME@STEP, if no script of PyTorch's gives them. Raises UsageError if it does not train as a
    pair is trained, and BackendError for what it raises itself.
    """
    text = job.case.model.keras
    program.begin_anew(job.case.seed)
    keras.utils.set_random_seed(job.case.seed)
    build = program.find("keras", text, job.pair.search)
    with user_errors(f"keras={text} fails"), lowered.defaults():
        model = build()
        fit, run, of_step = fits[model], build.__self__, None
        outputs = _outputs(model, fit, run.is_loop)
        if is_overridden(model, "train_step") and not run.is_loop:
            with precision.eagerly():
                of_step = calls_of_step(model, fit)
        early = run.early()
        fetched, made = of_step or run.fetched() or (None, {})
        chain = run.chain() if run.is_loop else _chain_of_step(model, fit, of_step)
        outputs = _of_chain(chain) or outputs or run.outputs
        arrays = fit.arrays | made
        if job.case.model.torch == UNUSED:
            steps = enumerate(run.batches(job.case.steps))
            arrays = {f"{name}@{step}": each for step, given in steps for name, each in given.items()}
    arrays |= {f"{name}@1": each for given in run.later[:1] for name, each in given.inputs.items()}
    trained = Trained(
        inputs=list(fit.inputs),
        callbacks=[type(each).__name__ for each in fit.callbacks if not is_run(each)],
        is_loop=run.is_loop,
        most=0 if run.is_loop else steps_of(fit),
        epoch=0 if run.is_loop else fit.batches or 0,
        early=early,
        outputs=outputs,
        fetched=fetched,
        chain=chain,
        labels={} if run.is_loop else fit.labels,
        targets=[key for (key, *_), _ in keras.tree.flatten_with_path(fit.y)] if keras.tree.is_nested(fit.y) else [],
        is_distributed=run.is_distributed,
        sizes=[int(np.prod(each.shape)) for each in getattr(model, "weights", [])],
        every=getattr(getattr(model, "optimizer", None), "gradient_accumulation_steps", None) or 1,
        is_held=run.is_loop and not run.targets.is_seen,
        has_copies=bool(run.copies) or getattr(getattr(model, "optimizer", None), "use_ema", False),
    )
    run.close()
    write(Path(job.folder), trained, arrays)


def _of_single(model: Any, inputs: Any) -> Shapes:
    """Return the shape of what a model returns if that is one tensor; nothing if it cannot be called yet."""
    outputs: list[Any] = []
    with contextlib.suppress(Exception), precision.eagerly():
        outputs = model.outputs if isinstance(model, Functional) else keras.tree.flatten(model(inputs))
    return {"": [size or 1 for size in outputs[0].shape]} if len(outputs) == 1 else {}
