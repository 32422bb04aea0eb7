"""Rules about what moves between devices: the batch, constants, parameters, and where the host waits for it."""

import math
from collections.abc import Iterator

from parity.doctor.evidence import Copy, Evidence, Tensor
from parity.doctor.finding import Finding, finding_at, make_finding
from parity.doctor.rules import facts, words
from parity.doctor.rules.misplaced import misplaced_weights

STRIDED = 64 * 1024  # bytes from which it matters whether a batch is contiguous
PAGEABLE = 1024 * 1024  # bytes from which it matters whether it is in pinned memory
WORTH = 0.005  # share of a step's time from which it is mentioned
# Origins of tensors that are new in each step, or for which there is another rule.
NOT_CONSTANT = ("input ", "output of ", "loss", "gradient", "parameter ")
# Why the workers of a data loader return the same, and the fix.
WHOLE = (
    "each of its workers goes through the whole IterableDataset.",
    "samples = itertools.islice(samples, info.id, None, info.num_workers)  # info = torch.utils.data.get_worker_info()",
)
COPIED = (
    "its workers draw the same random numbers, since each has a copy of the same generator.",
    "generator = numpy.random.default_rng(torch.initial_seed())  # in the worker, where that seed is its own",
)


def copied_again(evidence: Evidence) -> Iterator[Finding]:
    """Report inputs that are copied to the same device more than once in a step."""
    inputs = [copy for copy in facts.last(evidence).copies if facts.is_input(copy.tensor)]
    copies = [copy for copy in inputs if copy.what in ("to", "implicit")]
    routes = facts.grouped(copies, lambda copy: (copy.tensor.origin, copy.target))
    again = [[copy for copy in route if copy.again and not facts.is_host(copy.target)] for route in routes]
    repeated = [(needless[0], route) for needless, route in zip(again, routes, strict=True) if needless]
    for of_line in facts.grouped(repeated, lambda pair: (pair[0].place.module, pair[0].place.source)):
        first = of_line[0][0]
        message = " ".join(
            f"The {needless.tensor.origin} is copied to {needless.target} {words.amount(route)}, "
            f"{sum(copy.again for copy in route)} of them needless."
            for needless, route in of_line
        )
        moved = words.moved(evidence.side, words.variable(first.tensor), first.target)
        fix = f"{moved}  # once, before the model is called"
        yield finding_at("warning", "input.copied_again", first.place, message, fix)


def not_contiguous(evidence: Evidence) -> Iterator[Finding]:
    """Report large batches that are not contiguous in memory when they are copied to a GPU."""
    strided = [copy for copy in facts.sent(evidence) if copy.what == "to" and not copy.contiguous]
    for copies in facts.by_line(copy for copy in strided if copy.tensor.bytes >= STRIDED):
        first = copies[0]
        message = (
            f"{words.copied(copies)} not contiguous{words.made(first.tensor)}: the host makes "
            f"{words.size(first.tensor.bytes)} contiguous before each copy to {first.target}."
            f"{words.repeated(facts.number(copies))}"
        )
        name = words.variable(first.tensor)
        fix = f"{name} = {name}.contiguous()  # in the data loader's workers"
        yield finding_at("warning", "input.not_contiguous", first.place, message, fix)


def not_pinned(evidence: Evidence) -> Iterator[Finding]:
    """Report large batches that are copied to a GPU from memory that is not pinned."""
    inputs = [copy for copy in facts.sent(evidence) if copy.what == "to" and facts.is_input(copy.tensor)]
    for copies in facts.by_line(copy for copy in inputs if not copy.pinned and copy.tensor.bytes >= PAGEABLE):
        first = copies[0]
        message = (
            f"{words.copied(copies)} not in pinned memory: {words.size(first.tensor.bytes)} go to {first.target} "
            f"through another buffer, while the host waits.{words.repeated(facts.number(copies))}"
        )
        fix = "loader = DataLoader(dataset, pin_memory=True)  # and .to(device, non_blocking=True)"
        yield finding_at("note", "input.not_pinned", first.place, message, fix)


def repeated(evidence: Evidence) -> Iterator[Finding]:
    """Report batches that one worker of a data loader returns as another one did."""
    for step in evidence.steps:
        for batch in facts.lines(step.repeated):
            why, fix = WHOLE if batch.whole else COPIED
            message = f"Batch {batch.batch} of the data loader is batch {batch.first} again: {why}"
            yield finding_at("warning", "input.repeated", batch.place, message, fix)


HOW = {
    "cpu": "copied to the host",
    "item": "read as a Python number",
    "numpy": "read as a NumPy array",
    "print": "printed",
    "bool": "evaluated as a bool",
    "boolean_index": "indexed by a mask, whose true elements the host has to count",
}
WITHOUT_WAITING = {
    "print": "if step % 100 == 0: print({name})",
    "bool": "x = {framework}.where({name}, a, b)  # in place of the if",
    "boolean_index": "{name} = {framework}.where(mask, {name}, 0)",
}
TORCH = WITHOUT_WAITING | {
    "cpu": "{name} = {name}.detach()  # stays on {device}",
    "item": "total += {name}.detach()  # .item() only where it is logged",
    "numpy": "{name} = {name}.detach()  # .numpy() only after the loop",
}
KERAS = WITHOUT_WAITING | {
    "cpu": 'with tf.device("{device}"): {name} = tf.identity({name})  # stays there',
    "item": "metric.update_state({name})  # .result() only where it is logged",
    "numpy": "metric.update_state({name})  # .numpy() only after the loop",
}


def waits(evidence: Evidence) -> Iterator[Finding]:
    """Report every line at which the host waits."""
    waiting = [copy for copy in facts.last(evidence).copies if copy.what in HOW and not facts.is_host(copy.source)]
    for copies in facts.grouped(waiting, lambda copy: (copy.what, copy.place.module, copy.place.source)):
        first = copies[0]
        devices = words.listed(list(dict.fromkeys(copy.source for copy in copies)))
        # The share of the step's time that the waits take, if it is known and not negligible.
        share = sum(copy.seconds for copy in copies) / (facts.last(evidence).seconds or math.inf)
        of_time = f", {min(share, 1.0):.0%} of the step's time" if share >= WORTH else ""
        how = f"{HOW[first.what]}, {words.amount(copies)}"
        message = f"{words.copied(copies)} {how}: the host waits for {devices}{of_time}."
        fix = first.mended or _without_waiting(evidence, first)
        yield finding_at("warning", f"sync.{first.what}", first.place, message, fix)


def races(evidence: Evidence) -> Iterator[Finding]:
    """Report copies to the host that are read before they are complete."""
    for race in facts.lines(facts.last(evidence).races):
        message = (
            f"{words.tensor(race.tensor)} is copied to the host with non_blocking=True, and {race.read} reads the "
            f"copy without waiting for it: what it reads may be old numbers.{words.repeated(race.count)}"
        )
        fix = race.mended or "torch.cuda.synchronize()  # after this line"
        yield finding_at("error", "sync.race", race.place, message, fix)


def _without_waiting(evidence: Evidence, copy: Copy) -> str:
    name = "loss" if copy.tensor.origin == "loss" or not copy.tensor.shape else words.variable(copy.tensor)
    if copy.what == "cpu" and name == "loss":
        return f"history.append({'loss.detach()' if evidence.side == 'torch' else 'loss'})  # without .cpu()"
    if copy.what == "cpu" and copy.place.phase == "loss":
        return f"{words.moved(evidence.side, 'target', copy.source)}  # the loss there, without .cpu()"
    framework, lines = ("torch", TORCH) if evidence.side == "torch" else ("tf", KERAS)
    return lines[copy.what].format(name=name, device=copy.source, framework=framework)


def constant(evidence: Evidence) -> Iterator[Finding]:
    """Report values that do not change and are sent from the host in each step."""
    misplaced = {weight.name for weight, _ in misplaced_weights(evidence)}
    constants = [copy for copy in facts.sent(evidence) if _is_constant(copy, len(evidence.steps))]
    for copies in facts.by_line(copy for copy in constants if _name(copy.tensor) not in misplaced):
        first, targets = copies[0], words.listed(list(dict.fromkeys(copy.target for copy in copies)))
        message = f"{words.copied(copies)} sent to {targets}, {words.amount(copies)}{words.made(first.tensor)}."
        fix = 'self.register_buffer("value", value)  # in __init__, then model.to() moves it once'
        if evidence.side == "keras":
            fix = f'with tf.device("{first.target}"): self.value = tf.constant(value)  # once, in __init__'
        elif name := _name(first.tensor):
            moved = words.moved("torch", words.code(name), first.target)
            fix = f"{moved}  # once; model.to() moves a registered buffer too"
        yield finding_at("warning", "copy.constant", first.place, message, fix)


def _is_constant(copy: Copy, steps: int) -> bool:
    """Return whether a copy has the same values in each step: created there as a constant, or sent before as well."""
    origin = copy.tensor.origin
    if copy.what != "to" or origin.startswith(NOT_CONSTANT):
        return copy.what == "constant"
    return bool(copy.again) or origin == "constant" or (origin.startswith("buffer ") and steps == 1)


def _name(tensor: Tensor) -> str:
    kind, _, name = tensor.origin.partition(" ")
    return name if kind in ("parameter", "buffer") else ""


def parameter(evidence: Evidence) -> Iterator[Finding]:
    """Report parameters that go from device to device in each step."""
    if facts.spread(evidence):
        return
    misplaced = {f"parameter {weight.name}" for weight, _ in misplaced_weights(evidence)}
    moved = [c for c in facts.last(evidence).copies if c.what == "to" and c.tensor.origin.startswith("parameter ")]
    moved = [copy for copy in moved if copy.tensor.origin not in misplaced]
    for copies in facts.grouped(moved, lambda copy: copy.place.source):
        first, by_parameter = copies[0], facts.grouped(copies, lambda copy: copy.tensor.origin)
        names = words.subject([_name(group[0].tensor) for group in by_parameter], "goes", "go")
        often = words.repeated(max(map(facts.number, by_parameter)))
        message = f"{names} from {first.source} to {first.target} in each step ({words.size_of(copies)}).{often}"
        owner = words.owner(first.tensor)
        fix = words.placed(evidence.side, words.code(owner), first.target)
        yield make_finding("warning", "copy.parameter", first.place.module or owner, first.place.source, message, fix)


def implicit(evidence: Evidence) -> Iterator[Finding]:
    """Report what TensorFlow moves between GPUs by itself in the forward pass, the copies of one line together."""
    for copies in _between_gpus(evidence, ("forward", "loss", "other")):
        first = copies[0]
        message = (
            f"TensorFlow moved {words.tensor(first.tensor)} to {first.target} on its own, because an op that needs it "
            f"runs there: {words.count(facts.number(copies), 'copy')} in a step ({words.size_of(copies)})."
        )
        layer = words.code(first.place.module) if first.place.module else "layer"
        fix = f'with tf.device("{first.source}"): x = {layer}(x)'
        yield finding_at("warning", "copy.implicit", first.place, message, fix)


def backward(evidence: Evidence) -> Iterator[Finding]:
    """Report a backward pass on another device than its forward, unless the forward itself is misplaced."""
    for copies in [] if _between_gpus(evidence, ("forward",)) else _between_gpus(evidence, ("backward",)):
        first, modules = copies[0], [copy.place.module or words.owner(copy.tensor) for copy in copies]
        names = words.listed(list(dict.fromkeys(filter(None, modules))) or ["the model"])
        amount = f"{words.count(facts.number(copies), 'copy')} in a step ({words.size_of(copies)})"
        forward = f"the forward of {names} ran on {first.source}"
        message = f"The backward pass runs on {first.target}, but {forward}: {amount}."
        gradients = "gradients = tape.gradient(output, variables)  # a tape for each device"
        fix = f'with tf.device("{first.source}"): {gradients}'
        yield make_finding("warning", "placement.backward", modules[0], first.place.source, message, fix)


def _between_gpus(evidence: Evidence, phases: tuple[str, ...]) -> list[list[Copy]]:
    """Return the copies between GPUs that TensorFlow, not the program, makes in some phases of the step, by line."""
    unintended = []
    for copy in [] if facts.spread(evidence) else facts.last(evidence).copies:
        # A parameter that the training script itself reads, outside of the model's forward, must be where that code is.
        is_intended = not copy.place.module and copy.tensor.origin.startswith("parameter ") and "backward" not in phases
        # A gradient has to return to the device that the activation came from. Values that the forward pass saved are
        # already on the device of their op and should not have to move.
        is_intended = is_intended or (copy.place.phase == "backward" and copy.tensor.origin in ("gradient", ""))
        is_between = copy.source != copy.target and not (facts.is_host(copy.source) or facts.is_host(copy.target))
        if copy.what == "implicit" and is_between and copy.tensor.shape and copy.place.phase in phases:
            unintended += [] if is_intended else [copy]
    return facts.grouped(unintended, lambda copy: copy.place.source)
