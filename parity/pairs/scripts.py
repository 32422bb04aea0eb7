"""Make a pair of two training scripts: what they train on, and how the one's batches are given to the other's model.

Both are run once, unrecorded: PyTorch's for some steps, Keras's up to `fit`. PyTorch's batches are then the inputs of
the pair, in the order of axes in which the Keras script's own data is.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from einops import rearrange
from msgspec.structs import replace

from parity.config.pair import SAMPLE_WEIGHT, TARGET, Pair, PairInput, PairOutput
from parity.core.arrays import Array
from parity.core.errors import BackendError, UsageError
from parity.core.script import name_of
from parity.pairs import script_counterparts, script_steps, script_told
from parity.pairs.file import PairFile
from parity.pairs.script_names import first_alike, with_names
from parity.pairs.script_parts import outputs_by_shape, with_columns
from parity.pairs.script_records import (
    BATCH,
    FIRST,
    FOLDER,
    GIVEN,
    OF_LOSS,
    Frozen,
    Ran,
    Shapes,
    Trained,
    names_of_calls,
    names_of_steps,
    of_stem,
    write,
)
from parity.pairs.script_steps import Steps, described
from parity.runtime.job import BatchesJob
from parity.runtime.runner import Worker, both
from parity.trace.mapping import PairContext


def completed(file: PairFile, sides: Sequence[Worker], folder: Path) -> PairFile:
    """Return a pair of scripts with its inputs, which are PyTorch's where that is run; any other as it is.

    Raises UsageError and BackendError.
    """
    pair = file.pair
    if not file.has_scripts or pair.inputs:
        return file
    own = folder.absolute() / FOLDER
    context = PairContext(search=file.search)
    jobs = {side: BatchesJob(case=file.case, folder=str(own / side.name), pair=context) for side in sides}
    for side in jobs:
        (own / side.name).mkdir(parents=True, exist_ok=True)
    for side_name, answer in both(jobs).items():
        if answer.status != "done":
            error = UsageError if answer.status == "usage" else BackendError
            raise error(f"{side_name}: {answer.message}")
    names = [side.name for side in sides]
    return _joined(file, own, has_keras="keras" in names) if "torch" in names else _of_keras(file, own)


def _joined(file: PairFile, folder: Path, has_keras: bool) -> PairFile:
    """Return the pair of two scripts that have been run, and write what PyTorch's is to be known to train on.

    Its steps begin where the models are called, or, where that needs it, where a batch is taken.
    """
    torch, keras = Ran.of(folder / "torch"), Ran.of(folder / "keras") if has_keras else None
    arrays, takes_parts = script_counterparts.without_parts(torch.arrays, keras.arrays if keras else {})
    torch = Ran(replace(torch.trained, takes_parts=takes_parts), arrays)
    if keras and (joined := script_counterparts.with_steps_joined(*torch, *keras)):
        torch = Ran(*joined)
    made, shared = None, None
    if not keras:
        shared = {name: described(torch.arrays[f"{name}@0"]) for name in names_of_calls(torch.arrays)}
    else:
        made = script_steps.steps(torch.trained.fetched, torch.arrays, keras.trained.fetched, keras.arrays)
        shared = _shared_inputs(file.pair, torch, keras) if keras.trained.is_loop or keras.trained.epoch == 1 else None
    if keras and made and not made.fetched.function and (made.are_made or made.are_alike):
        return _of_batches(file, made, torch, keras.trained, folder)
    of_loss = [each for key, each in torch.arrays.items() if key.startswith(OF_LOSS) and key.endswith("@0")]
    has_mask, is_held = any(each.dtype == bool for each in of_loss), keras is not None and keras.trained.is_held
    # Which of several is which in the loop is not told, nor which the mask or the target is.
    is_fit = keras is not None and not keras.trained.is_loop
    if shared and of_loss and not is_fit and (len(of_loss) > 1 or has_mask or is_held):
        return _of_own_data(file, shared, torch, keras, folder)
    try:
        return _of_calls(file, torch, keras, folder)
    except UsageError:
        if keras and made and (is_fit or not shared):
            return _of_batches(file, made, torch, keras.trained, folder)
        if keras and shared:
            return _of_own_data(file, shared, torch, keras, folder)
        raise


def _of_batches(file: PairFile, made: Steps, torch: Ran, keras: Trained, folder: Path) -> PairFile:
    """Return a pair whose steps begin where a batch is taken."""
    beside = _beside(torch.trained, keras) if len(made.fetched.modules) == 1 else {}
    own = {"fetched": made.fetched, "keras_fetched": made.keras, "beside": beside}
    known = replace(torch.trained, in_evaluation=[], early=None, chain=None, **own)
    (arrays, unlike), inputs = _apart(made.arrays, torch.trained), made.inputs
    target = None if TARGET in inputs else made.target(torch.arrays)
    if target is not None:  # known for what is said of a loss
        inputs = inputs | {TARGET: described(arrays[f"{target}@0"])}
        of_target = [key for key in arrays if key.rpartition("@")[0] == target]
        arrays |= {f"{TARGET}@{key.rpartition('@')[2]}": arrays[key] for key in of_target}
        unlike |= {TARGET: unlike[target]} if unlike else {}
    write(folder / "torch", known, arrays, unlike)
    ours: Shapes = dict(enumerate(made.fetched.returned))
    theirs: Shapes = dict(enumerate(made.keras.returned))
    outputs = file.pair.outputs
    if len(made.fetched.modules) == len(made.keras.calls) == 1:
        of_step = {"": made.keras.returned[0]} if len(theirs) == 1 else theirs
        is_called_so = len(keras.outputs) == len(theirs)  # a model without a call returns what it is seen to call
        outputs = outputs or _outputs(torch.trained, keras if is_called_so else replace(keras, outputs=of_step))
    elif max(len(ours), len(theirs)) > 1:
        outputs = outputs or outputs_by_shape(ours, theirs)
    return _trained_on(file, folder / "torch", inputs, outputs, arrays, keras)


def _of_calls(file: PairFile, torch: Ran, keras: Ran | None, folder: Path) -> PairFile:
    """Return a pair whose steps begin where its models are called."""
    pair, trained = file.pair, torch.trained
    for text, of_side in ((pair.torch, torch.trained), (pair.keras, keras and keras.trained)):
        script_steps.refuse_several(text, of_side)
    names = names_of_calls(torch.arrays)
    states, theirs = list[str](), list[str]()
    told, named = {}, {}
    parts: dict[str, str] = {}  # of which matrix each input is a column, in one of the scripts
    if keras:
        torch, keras, parts = with_columns(torch, keras)
        names, trained = names_of_calls(torch.arrays), torch.trained
        given = {name: keras.arrays[name] for name in keras.trained.inputs}
        states, theirs = script_counterparts.initial_states(torch.arrays, names, trained.carried, given)
        keras = keras._replace(trained=replace(keras.trained, inputs=[each for each in given if each not in theirs]))
        told = script_counterparts.held_alike(torch.arrays, keras.arrays, keras.trained.inputs)
        named = script_counterparts.called_alike(torch.arrays, keras.arrays, trained.labels, keras.trained.labels)
    beside = _beside(trained, keras.trained) if keras else {}
    left_out = (BATCH, FIRST, GIVEN, *(f"{name}@" for name in (*states, *(trained.of_beside if beside else ()))))
    of_calls = {key: array for key, array in torch.arrays.items() if not key.startswith(left_out)}
    held = told or named
    arrays, of_loss = with_names(pair, of_calls, keras.arrays if keras else {}, held, trained.compared_with)
    arrays, unlike = _apart(arrays, trained)
    first = script_steps.first_step(arrays)
    inputs, outputs = {name: described(array) for name, array in first.items()}, pair.outputs
    if keras:
        inputs = _with_keras(pair, inputs, first, keras, held)
        inputs = {
            name: replace(each, torch=parts.get(name, each.torch), keras=parts.get(each.keras, each.keras))
            for name, each in inputs.items()
        }
        if states and len(keras.trained.outputs) != 1:  # of what both return as a state, in other forms, gradients tell
            outputs = outputs or {
                f"output{key}": PairOutput(torch=key, keras=key) for key in trained.outputs if key != ""
            }
        outputs = outputs or _by_targets(trained, keras, held) or _outputs(trained, keras.trained)
    early = keras and keras.trained.early
    alone = [name for name, each in inputs.items() if each.only]
    own: dict[str, Any] = {"of_loss": of_loss, "states": states, "keras_states": theirs, "alone": alone}
    own |= {"keras_chain": keras.trained.chain, "is_held": keras.trained.is_held} if keras else {}
    apart = script_told.other_targets(pair, inputs, torch.arrays | arrays, keras.arrays) if keras else ""
    known = replace(trained, fetched=None, keras_early=early, are_told=bool(told), beside=beside, apart=apart, **own)
    write(folder / "torch", known, arrays, unlike)
    return _trained_on(file, folder / "torch", inputs, outputs, arrays, keras.trained if keras else None)


def _apart(arrays: Mapping[str, Array], trained: Trained) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the arrays of the steps, and those of the batch that is unlike theirs, by name."""
    of_unlike = {key for key in arrays if trained.unlike and key.endswith(f"@{trained.unlike}")}
    steps = {key: array for key, array in arrays.items() if key not in of_unlike}
    return steps, {key.partition("@")[0]: arrays[key] for key in of_unlike}


def _of_keras(file: PairFile, folder: Path) -> PairFile:
    """Return a pair of which a script of Keras's is run alone: `fit` on its batches, a loop on its own data."""
    ran = Ran.of(folder / "keras")
    names = {own: f"input{own}" if own.isdigit() else own for own in names_of_steps(ran.arrays)}
    numbered = {key: key.partition("@") for key in ran.arrays}
    arrays = {f"{names[own]}@{step}": ran.arrays[key] for key, (own, _, step) in numbered.items()}
    inputs = {
        name: replace(described(arrays[f"{name}@0"]), keras="" if own.isdigit() else own) for own, name in names.items()
    }
    own = {"keras_early": ran.trained.early, "keras_chain": ran.trained.chain, "keeps_data": ran.trained.is_loop}
    known = replace(ran.trained, early=None, fetched=None, chain=None, **own)
    write(folder / "keras", known, arrays)
    return _trained_on(file, folder / "keras", inputs, file.pair.outputs, arrays, ran.trained)


def _beside(torch: Trained, keras: Trained) -> dict[str, Frozen]:
    """Return the modules beside PyTorch's model of which Keras's model has the weights as well; all or none."""
    sizes = Counter(size for each in torch.beside.values() for size in each.sizes)
    return torch.beside if sizes <= Counter(keras.sizes) - Counter(torch.sizes) else {}


def _outputs(torch: Trained, keras: Trained) -> dict[str, PairOutput]:
    """Return those of two models that are called once in a step, whose shapes must tell them; none if names do."""
    is_single = all(each.outputs.keys() == {""} for each in (torch, keras))
    return outputs_by_shape(torch.outputs, keras.outputs) if keras.outputs and not is_single else {}


def _by_targets(torch: Trained, keras: Ran, held: Mapping[str, str]) -> dict[str, PairOutput]:
    """Return the outputs of which each is compared with a target of its own, which tells its counterpart.

    `held`: PyTorch's arrays by Keras's inputs and targets.
    """
    targets = [torch.compared_with.get(held.get(name, "")) for name in of_stem(TARGET, keras.arrays)]
    ours, theirs = list(torch.outputs), keras.trained.targets
    if not len(targets) == len(theirs) == len(ours) or set(targets) != set(range(len(ours))):
        return {}
    keys = [ours[number or 0] for number in targets]
    return {f"output{own}": PairOutput(torch=own, keras=key) for own, key in zip(keys, theirs, strict=True)}


def _shared_inputs(pair: Pair, torch: Ran, keras: Ran) -> dict[str, PairInput] | None:
    """Return the inputs of two scripts whose models are given the same in the first two steps; None if they are not.

    Of a fit each of whose epochs is one batch, as of a whole graph, an input that is the same tells that the samples
    are: it is given PyTorch's others.
    """
    inputs, are_same, is_loop = dict[str, PairInput](), list[bool](), keras.trained.is_loop
    first = {name: torch.arrays[f"{name}@0"] for name in names_of_calls(torch.arrays)}
    try:
        for name, theirs in script_counterparts.counterparts(pair, first, keras.trained.inputs, keras.arrays).items():
            layout = script_steps.layout_of(pair, name, first[name], keras.arrays[theirs])
            for step, key in enumerate((theirs, f"{theirs}@1")):
                given = torch.arrays.get(f"{name}@{step}", np.zeros(0))
                given = rearrange(given, layout) if layout else given
                are_same.append(np.array_equal(given, keras.arrays.get(key if is_loop else theirs, given)))
            named = "" if is_loop or theirs.isdigit() else theirs
            inputs[name] = replace(described(first[name]), keras=named, keras_layout=layout)
    except UsageError:
        return None
    is_same = any(map(all, zip(are_same[::2], are_same[1::2], strict=True)))
    return inputs if all(are_same) or (is_same and not is_loop) else None


def _of_own_data(file: PairFile, inputs: dict[str, PairInput], torch: Ran, keras: Ran | None, folder: Path) -> PairFile:
    """Return a pair of loops that each train on their own data, or PyTorch's alone."""
    steps = _apart(torch.arrays, torch.trained)[0]
    arrays = {key: array for key, array in steps.items() if key.partition("@")[0] in inputs}
    own = {"keras_early": keras.trained.early, "keras_chain": keras.trained.chain} if keras else {}
    write(folder / "torch", replace(torch.trained, keeps_data=True, fetched=None, **own), arrays)
    return _trained_on(file, folder / "torch", inputs, file.pair.outputs, arrays, keras and keras.trained)


def _trained_on(
    file: PairFile,
    folder: Path,
    inputs: dict[str, PairInput],
    outputs: dict[str, PairOutput],
    arrays: Mapping[str, Array],
    keras: Trained | None,
) -> PairFile:
    """Return the pair with what it is trained on, in `folder`; `arrays`: the inputs of each step, by NAME@STEP."""
    number = sum(key.startswith(f"{next(iter(inputs))}@") for key in arrays)
    number = min(number, (keras and keras.most) or number)
    assert file.pair.train
    step = file.pair.keras if keras and keras.is_loop else ""
    train = replace(file.pair.train, steps=number, keras_step=step)
    model = replace(file.pair, inputs=inputs, outputs=outputs, train=train)
    case = replace(file.case, model=model, steps=number)
    return file._replace(case=case, search=[*file.search, str(folder)])


def _with_keras(
    pair: Pair, inputs: dict[str, PairInput], torch: Mapping[str, Array], keras: Ran, held: Mapping[str, str]
) -> dict[str, PairInput]:
    """Return the inputs with their names and axes in Keras's script; `held`: those that hold the same data.

    Raises UsageError if Keras's fit takes a target, or weights, that PyTorch's loss does not.
    """
    weights = of_stem(SAMPLE_WEIGHT, keras.arrays)
    weighing = {name for name in first_alike(weights).values() if len(weights) == 1 or (weights[name] != 1).any()}
    for name in (TARGET, *weighing):
        if name in keras.arrays and name not in torch:
            what = "a target" if name == TARGET else "weights of the samples"
            raise UsageError(
                f"{name_of(pair.keras)} gives {what} to fit, and the loss of {name_of(pair.torch)} takes no such "
                "tensor beside what its model returns; expected scripts that train on the same batches"
            )
    given = [name for name in torch if name.partition(".")[0] not in (TARGET, SAMPLE_WEIGHT)]
    by_data = {held[name]: name for name in keras.trained.inputs if name in held}
    arrays = {name: torch[name] for name in given}
    theirs = by_data or script_counterparts.counterparts(pair, arrays, keras.trained.inputs, keras.arrays)
    inputs |= {name: replace(inputs[name], only="torch") for name in given if name not in theirs}
    in_order = sorted(theirs, key=lambda name: keras.trained.inputs.index(theirs[name]))
    inputs = {name: inputs[name] for name in in_order} | inputs  # Keras's have no names, or their own
    for name, own in theirs.items():
        layout = script_steps.layout_of(pair, name, torch[name], keras.arrays[own])
        named = "" if own.isdigit() else own
        inputs[name] = replace(inputs[name], keras=named, keras_layout=layout)
    for name in inputs:  # of further calls of the model
        if (first := name.partition(".")[2].partition(".")[2]) in inputs and name.startswith(f"{TARGET}."):
            layout = inputs[first].keras_layout
            inputs = inputs | {name: replace(inputs[name], keras_layout=layout)}
    return inputs
