"""What the user's Keras script trains on: the first batch that `fit` would give to its model."""

import contextlib
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras.src.models.functional import Functional

from keras_impl.instruments.script_data import fits, is_run, steps_of
from keras_impl.instruments.uncalled import calls_of_step, is_uncalled, let_call
from keras_impl.record import precision
from keras_impl.record.pair.build import is_overridden, user_errors
from parity.config.pair import SAMPLE_WEIGHT
from parity.core import program
from parity.pairs.script_records import Trained, write
from parity.runtime.job import BatchesJob


def batches(job: BatchesJob) -> None:
    """Run the script up to its call of `fit`, and write its first batch into the job's folder.

    Raises UsageError if it does not train as a pair is trained, and BackendError for what it raises itself.
    """
    text = job.case.model.keras
    program.begin_anew(job.case.seed)
    keras.utils.set_random_seed(job.case.seed)
    build = program.find("keras", text, job.pair.search)
    with user_errors(f"keras={text} fails"):
        model = build()
        fit, outputs = fits[model], dict[str | int, list[int]]()
        if is_uncalled(model) and fit.y is None:
            let_call(model, None)
            with precision.eagerly():
                outputs = {number: list(each.shape) for number, each in enumerate(model(fit.x))}
        elif not build.__self__.is_loop:
            outputs = _of_single(model, fit.x)
        run, of_step = build.__self__, None
        if is_overridden(model, "train_step") and not run.is_loop:
            with precision.eagerly():
                of_step = calls_of_step(model, fit)
        early = run.early()
        fetched, made = of_step or run.fetched() or (None, {})
    weight = {} if fit.sample_weight is None else {SAMPLE_WEIGHT: np.asarray(fit.sample_weight)}
    arrays = fit.inputs | fit.targets | weight | made
    arrays |= {f"{name}@1": each for name, each in run.second.inputs.items()} if run.second else {}
    trained = Trained(
        inputs=list(fit.inputs),
        callbacks=[type(each).__name__ for each in fit.callbacks if not is_run(each)],
        is_loop=run.is_loop,
        most=0 if run.is_loop else steps_of(fit),
        early=early,
        outputs=outputs,
        fetched=fetched,
        is_distributed=run.is_distributed,
        has_copies=bool(run.copies) or getattr(getattr(model, "optimizer", None), "use_ema", False),
    )
    run.close()
    write(Path(job.folder), trained, arrays)


def _of_single(model: Any, inputs: Any) -> dict[str | int, list[int]]:
    """Return the shape of what a model returns if that is one tensor; nothing if it cannot be called yet."""
    outputs: list[Any] = []
    with contextlib.suppress(Exception), precision.eagerly():
        outputs = model.outputs if isinstance(model, Functional) else keras.tree.flatten(model(inputs))
    return {"": [size or 1 for size in outputs[0].shape]} if len(outputs) == 1 else {}
