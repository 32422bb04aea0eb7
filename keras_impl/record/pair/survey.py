"""Surveys the user's Keras model: its layers and weights, and what each layer returns in one pass.

Once a mapping is known, the pass runs with torch's weights in the mapped variables.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from msgspec.structs import replace

from keras_impl.record import calls, precision, tree, weights
from keras_impl.record.calls import Call
from keras_impl.record.pair import build, layers, values
from keras_impl.record.pair.first_call import ready
from keras_impl.record.pair.outputs import describe_returned, flat, named, ordered
from keras_impl.record.pair.rehearsal import rehearse, still, unused, without_dropping
from keras_impl.record.pair.sources import Sources, noted_at_creation
from keras_impl.record.precision import promoted
from parity.config.pair import Pair
from parity.config.schema import Case
from parity.core.precision import HIGH
from parity.core.program import load
from parity.data.pairs import PairData
from parity.pairs.causes.sources import shown
from parity.runtime import survey as surveys
from parity.runtime.job import SurveyJob
from parity.runtime.returned import Path as Keys
from parity.trace.keys import MODEL


def survey(job: SurveyJob) -> None:
    """Write the survey of Keras's half. Raises UsageError and BackendError if its model cannot be built or called."""
    pair, halves, folder = job.case.model, job.pair, Path(job.folder)
    assert isinstance(pair, Pair)
    if job.seeds:
        surveys.keep(folder / surveys.DRAWN, _drawn(job))
        return
    keras.utils.clear_session()
    given = PairData(job.case, halves.search).step(0)
    with precision.policy(HIGH), promoted(HIGH):
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
        with (
            without_dropping(model, job.case, training=False),
            calls.observed(tree.inner(model), lambda _: None, forward_pass.see),
        ):
            outputs = build.call(model, pair, inputs)
        for name, tensor in named(pair, ordered(outputs, keys)):
            forward_pass.add(MODEL, weights.array(tensor), name)
        forward_pass.close()
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
    if any(map(_is_frozen, layers.variables(model))):
        model = ready(job.case, HIGH, job.pair.search, given, watched, surveyed=True)
    return model, *attempts[-1]


def _is_frozen(held: layers.Held) -> bool:
    """Return whether a variable was created to be trained and is not: then its initial values are what it is."""
    weight = held.description
    return not (weight.trainable or weight.fixed or weight.statistic)


def _drawn(job: SurveyJob) -> Iterator[tuple[str, np.ndarray]]:
    """Build the model with each seed, and yield what the builder gave to the job's tables."""
    given = PairData(job.case, job.pair.search).step(0)
    for number, seed in enumerate(job.seeds):
        keras.utils.clear_session()
        with precision.policy(HIGH), promoted(HIGH):
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
        return sources.of(load("train.keras_optimizer", text, search=search)())


class _Pass(surveys.Pass):
    """One observed forward pass: layers in the order of their calls, with the shapes of their first inputs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.called: dict[str, list[tuple[int, ...]]] = {}

    def see(self, call: Call, outputs: Any) -> None:
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
