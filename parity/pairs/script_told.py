"""What a report says of two scripts: what was not run of them, what is assumed, and what their data differ in."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from einops import rearrange

from parity.config.pair import OF_BATCH, SAMPLE_WEIGHT, TARGET, UNKNOWN, Pair, PairInput
from parity.core.arrays import Array, Floats
from parity.core.script import name_of
from parity.core.wording import agree, count
from parity.diagnose.experiment.causes import CARRIED, KEPT
from parity.pairs.file import PairFile
from parity.pairs.script_counterparts import ignored_as
from parity.pairs.script_records import (
    BATCH,
    FIRST,
    FOLDER,
    IGNORED,
    VALUES,
    Batches,
    Trained,
    read,
)
from parity.pairs.script_steps import FEWEST, are_of_other_scales, rows
from parity.results import CaseResult, Cause, Finding

DIGITS, TINY = 4, 1e-30  # by which samples are known, of numbers of such a scale at least
ROUNDING = 2.0**-16  # of the largest value: more than what sums in float32 make in data
LOST = (UNKNOWN, "state.missing")  # what is told of a state that is not carried
BUILDING = ": build: "  # in the note of what was promoted before the model was called


def tell(result: CaseResult, file: PairFile, folder: Path) -> None:
    """Add to a result what was not run of the scripts of a pair, and what their batches differ in."""
    if not (folder / FOLDER).exists():
        return
    sides = [folder / FOLDER / side for side in ("torch", "keras")]
    arrays, (trained, port) = [dict(np.load(side / VALUES)) for side in sides], map(read, sides)
    result.lifted = [each for each in result.lifted if BUILDING not in each]  # most of it by what makes the data
    result.not_compared += _not_run(file.pair, trained, port)
    result.assumptions += _assumed(file.pair, trained, *arrays)
    result.causes = _with_lost(result.causes, trained, *arrays)
    apart = list(_data_apart(file.pair, trained, *arrays))
    if trained.keeps_data and not port.is_loop:
        apart += _inputs_apart(file.pair, *arrays)
    if not apart and trained.epoch and port.epoch and trained.epoch * trained.keras_joined != port.epoch:
        ours, theirs = name_of(file.pair.torch), name_of(file.pair.keras)
        message = f"an epoch of {ours} has {count(trained.epoch, 'batch')}, one of {theirs} {port.epoch}"
        apart.append(Finding(id="script.epoch", side="keras", where=theirs, message=message))
    result.findings += apart


def _with_lost(causes: list[Cause], trained: Trained, torch: Batches, keras: Batches) -> list[Cause]:
    """Return the causes with a state of Keras's loop that is zero in its second step too, in place of those of LOST."""
    both = zip(trained.states, trained.keras_states, strict=False)
    lost = [own for own, name in both if f"{name}@1" in keras and not keras[f"{name}@1"].any()]
    unknown = [cause for cause in causes if cause.id in LOST]
    if not lost or not unknown:
        return causes
    evidence = f"{', '.join(lost)} in the second step"
    where, theirs = unknown[0].where, "begins with zeros again"
    named = Cause(id=CARRIED, where=where, torch=KEPT[True], keras=theirs, evidence=evidence)
    return [named, *(cause for cause in causes if cause not in unknown)]


def _data_apart(pair: Pair, trained: Trained, torch: Batches, keras: Batches) -> Iterator[Finding]:
    """Yield what the batches of two scripts differ in: their size, and the scale of what models, or losses, are given.

    Of another scale is that of which the mean logarithms of the samples' root mean squares are further apart than
    SCALE, and than CLEARLY times the standard error of their difference. What a step makes of its batch is left out,
    and what a step that begins with a batch takes for its target is not known.
    """
    ours, theirs = name_of(pair.torch), name_of(pair.keras)
    lengths = [len(next(each for each in arrays.values() if each.ndim)) for arrays in (torch, keras)]
    both = ({len(each) for each in arrays.values() if each.ndim} for arrays in (torch, keras))
    if lengths[0] != lengths[1] * trained.keras_joined and not set.intersection(
        *both
    ):  # graphs are as many, and not their nodes
        message = f"{ours} trains on batches of {lengths[0]}, {theirs} on batches of {lengths[1]}"
        yield Finding(id="script.batch_size", side="keras", where=theirs, message=message)
    if trained.apart:
        yield Finding(id="script.data", side="keras", where=theirs, message=trained.apart)
    taken = [each for key, each in torch.items() if key.startswith(OF_BATCH)]
    for number, (name, given) in enumerate(pair.inputs.items()):
        own = keras.get(given.keras or name, keras.get(str(number), np.zeros(0)))
        steps = [each for key, each in torch.items() if key.startswith(f"{name}@") and each.ndim]
        sides = [steps, [own]]
        is_made = bool(taken) and not any(np.array_equal(steps[0], each) for each in taken if steps)
        is_other = any(each.dtype.kind != "f" for side in sides for each in side)
        same = [target for target in keras if target.startswith(TARGET) and np.array_equal(own, keras[target])]
        others = [] if trained.fetched else [torch.get(f"{target}@0", own) for target in same]
        if any(each.size == steps[0].size and (each.ravel() != steps[0].ravel()).any() for each in others if steps):
            message = f"{theirs} gives {name} to its loss as target too, {ours} another tensor"
            yield Finding(id="script.data", side="keras", where=theirs, message=message)
        if is_made or is_other or any(sum(map(len, side)) < FEWEST for side in sides):
            continue
        squares = [np.concatenate([np.square(rows(each)).mean(1) for each in side]) for side in sides]
        if are_of_other_scales(squares):
            mine, scale = (float(np.sqrt(each.mean())) for each in squares)
            times = f"{theirs} gives {name} {scale / mine:.3g} times as large as {ours}"
            message = f"{times}: its root mean square is {scale:.3g}, not {mine:.3g}"
            yield Finding(id="script.data", side="keras", where=theirs, message=message)


def other_targets(pair: Pair, inputs: Mapping[str, PairInput], torch: Batches, keras: Batches) -> str:
    """Return how targets differ of samples that both scripts' datasets have; "" if they do not, or none are known.

    A sample is known by what the model is given of it, to DIGITS of its scale, if no other of PyTorch's is alike.
    `torch`: the arrays of the steps, by the pair's names, and those of the dataset.
    """
    names = [name for name in inputs if name.partition(".")[0] not in (TARGET, SAMPLE_WEIGHT)]
    theirs = {name: keras.get(inputs[name].keras or name, keras.get(str(at))) for at, name in enumerate(names)}
    theirs[TARGET] = keras.get(TARGET)
    sides: list[tuple[Floats, Floats]] = []
    for name, own in theirs.items():
        mine, layout = _first(torch, name), inputs[name].keras_layout if name in inputs else ""
        if mine is None or own is None or not (mine.ndim and own.ndim and mine.size and own.size):
            return ""
        if mine[0].size != own[0].size:
            return ""
        sides.append((rows(rearrange(mine, layout) if layout else mine), rows(own)))
    *given, (target, their_target) = sides
    scales = [max(float(mine.std()), TINY) for mine, _ in given]
    known, met = (
        [
            row.tobytes()
            for row in np.hstack(
                [np.round(each / scale, DIGITS) + 0.0 for each, scale in zip(side, scales, strict=True)]
            )
        ]
        for side in zip(*given, strict=True)
    )
    counts = Counter(known)
    pairs = [(known.index(key), number) for number, key in enumerate(met) if counts[key] == 1]
    apart = [each for each in pairs if not np.allclose(target[each[0]], their_target[each[1]], rtol=10.0**-DIGITS)]
    if len(pairs) < FEWEST or 2 * len(apart) < len(pairs):
        return ""
    values = f"{their_target[apart[0][1]][0]:.6g}, not {target[apart[0][0]][0]:.6g}"
    samples = f"{len(apart)} of {count(len(pairs), 'sample')} that both have"
    return f"{name_of(pair.keras)} has other targets than {name_of(pair.torch)} for {samples}: of the first, {values}"


def _first(torch: Batches, name: str) -> Array | None:
    """Return the first samples of PyTorch's dataset, of what is given by a name; None if they are not known."""
    taken = torch.get(f"{name}@0", np.zeros(0)).ravel()
    parts = (key for key in torch if key.startswith(BATCH) and key.endswith("@0"))
    found = [key for key in parts if np.array_equal(torch[key].ravel(), taken)]
    return torch.get(FIRST + found[0].removeprefix(BATCH).removesuffix("@0")) if len(found) == 1 else None


def _inputs_apart(pair: Pair, torch: Batches, keras: Batches) -> Iterator[Finding]:
    """Yield which inputs have other values in two scripts that train on the same samples, beyond rounding in float32.

    Both models are given PyTorch's, so that no result tells it.
    """
    ours, theirs = name_of(pair.torch), name_of(pair.keras)
    for number, (name, given) in enumerate(pair.inputs.items()):
        first = torch[f"{name}@0"]
        first = rearrange(first, given.keras_layout) if given.keras_layout else first
        values = np.asarray([first, keras.get(given.keras or name, keras.get(str(number), first))], np.float64)
        if (apart := np.abs(values[0] - values[1]).max(initial=0)) > ROUNDING * np.abs(values).max(initial=0):
            message = (
                f"{theirs} gives {name} other values than {ours}, {apart:.3g} apart; both were given those of {ours}"
            )
            yield Finding(id="script.data", side="keras", where=theirs, message=message)


def _not_run(pair: Pair, trained: Trained, port: Trained) -> Iterator[str]:
    """Yield what is not compared of two scripts; `trained`, `port`: what PyTorch's and Keras's were seen to do."""
    ours, theirs = name_of(pair.torch), name_of(pair.keras)
    before = "they take a batch" if trained.fetched else "the model"
    if trained.keeps_data and not port.is_loop:
        yield f"the targets: {ours} and {theirs} have their own, of the same samples; both models were given {ours}'s"
    elif trained.keeps_data:
        yield f"the batches: {ours} and {theirs} train on their own, which are the same in the first two steps"
    else:
        yield f"what the scripts do to their data and labels before {before}: both were given the batches of {ours}"
    yield "the weights that each script begins with: both were given PyTorch's"
    steps = pair.train.steps if pair.train else 0
    if trained.asked > steps:
        fit = f"{theirs}'s first call of fit, or an epoch at whose end a callback acts,"
        yield f"{count(trained.asked, 'step')}, as asked for: {fit if steps == port.most else ours} ends after {steps}"
    else:
        yield (
            f"what {ours} and {theirs} do after {count(steps, 'step')}: how long they train, further calls of fit, "
            "what callbacks set at the end of an epoch"
        )
    scripts = (ours, trained), (theirs, port)
    if distributed := [name for name, each in scripts if each.is_distributed]:
        runs = f"what {' and '.join(distributed)} {agree(len(distributed), 'does')} on several devices"
        yield f"{runs}: one rank, or replica, was run; [sides] of a file may have more"
    if keeping := [name for name, each in scripts if each.has_copies]:
        yield f"the copies of a model, such as averages, in {' and '.join(keeping)}: only what a step uses of them is"
    if trained.outside:
        yield f"{count(trained.outside, 'parameter')} that {ours} trains outside of its modules: only what follows is"
    if port.callbacks:
        yield f"the callbacks of fit in {theirs}: {', '.join(port.callbacks)}"


def _assumed(pair: Pair, trained: Trained, arrays: Mapping[str, Array], keras: Mapping[str, Array]) -> Iterator[str]:
    """Yield what is assumed of two scripts; `arrays`: PyTorch's."""
    ours, theirs = name_of(pair.torch), name_of(pair.keras)
    if trained.states:
        yield f"{', '.join(trained.states)} of {ours}'s model: zeros at first, as in Keras's, then what each carries on"
    for parts, cut, whole in ((trained.joined, ours, theirs), (trained.keras_joined, theirs, ours)):
        if parts > 1:
            yield f"{parts} batches of {cut}, whose gradients make one update, are one of {whole}"
    given = [name for name in pair.inputs if name.startswith(OF_BATCH)] or list(pair.inputs)
    kinds = []
    for name in given:
        array, role = arrays[f"{name}@0"], name.partition(".")[0]
        kinds.append((array.shape[1:], array.dtype.kind, role if role in (TARGET, SAMPLE_WEIGHT) else ""))
    if len(set(kinds)) < len(kinds) and not (trained.are_told or trained.keeps_data):
        yield f"inputs, or targets, of one shape are {theirs}'s by their names, or in their order"
    targets = [(arrays[f"{name}@0"], keras[name]) for name in pair.inputs if name.startswith(TARGET) and name in keras]
    for ignored in {ignored for each in targets if (ignored := ignored_as(*each)) is not None}:
        yield f"{IGNORED} among {ours}'s targets is {ignored} among {theirs}'s"
    if trained.alone:
        yield f"{', '.join(trained.alone)}: given to {ours}'s model alone, with the rest of a batch"
    if trained.in_evaluation:
        number = count(len(trained.in_evaluation), "step")
        yield f"{ours} trains in evaluation mode in {number}: it does not call model.train() after model.eval()"
