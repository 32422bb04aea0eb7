"""Rules about data between host and devices: the batch on its way, and lines at which the host waits in each step."""

from collections.abc import Iterator

from parity.doctor.evidence import Copy, Evidence
from parity.doctor.finding import Finding, finding_at, make_finding
from parity.doctor.rules import facts, words

STRIDED = 64 * 1024  # bytes from which it matters whether a batch is contiguous
PAGEABLE = 1024 * 1024  # bytes from which it matters whether it is in pinned memory

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
    by_route = facts.grouped(copies, lambda copy: (copy.tensor.origin, copy.target))
    again = [[copy for copy in group if copy.again and not facts.is_host(copy.target)] for group in by_route]
    repeated = [(needless[0], group) for needless, group in zip(again, by_route, strict=True) if needless]
    for routes in facts.grouped(repeated, lambda pair: (pair[0].place.module, pair[0].place.source)):
        first = routes[0][0]
        name = words.variable(first.tensor)
        fix = f"{words.moved(evidence.side, name, first.target)}  # once, before the model is called"
        message = " ".join(_copied(group) for _, group in routes)
        yield finding_at("warning", "input.copied_again", first.place, message, fix)


def _copied(copies: list[Copy]) -> str:
    """Return the sentence about the copies of one input to one device."""
    origin, target, needless = copies[0].tensor.origin, copies[0].target, sum(copy.again for copy in copies)
    return f"The {origin} is copied to {target} {words.amount(copies)}, {needless} of them needless."


def not_contiguous(evidence: Evidence) -> Iterator[Finding]:
    """Report large batches that are not contiguous in memory when they are copied to a GPU."""
    strided = [copy for copy in facts.sent(evidence) if copy.what == "to" and not copy.contiguous]
    for copies in facts.by_line(copy for copy in strided if copy.tensor.bytes >= STRIDED):
        first = copies[0]
        message = (
            f"{words.copied(copies)} not contiguous{words.made(first.tensor)}: "
            f"the host makes {words.size(first.tensor.bytes)} contiguous before each copy to {first.target}."
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
            "through another buffer, while the host waits."
            f"{words.repeated(facts.number(copies))}"
        )
        fix = "loader = DataLoader(dataset, pin_memory=True)  # and .to(device, non_blocking=True)"
        yield finding_at("note", "input.not_pinned", first.place, message, fix)


def repeated(evidence: Evidence) -> Iterator[Finding]:
    """Report batches that one worker of a data loader returns as another one did."""
    for step in evidence.steps:
        for batch in facts.lines(step.repeated):
            why, fix = WHOLE if batch.whole else COPIED
            message = f"Batch {batch.batch} of the data loader is batch {batch.first} again: {why}"
            yield make_finding("warning", "input.repeated", "", batch.place.source, message, fix)


WORTH = 0.005  # share of a step's time from which it is mentioned
HOW = {
    "cpu": "copied to the host",
    "item": "read as a Python number",
    "numpy": "read as a NumPy array",
    "print": "printed",
    "bool": "evaluated as a bool",
    "boolean_index": "indexed by a mask, whose true elements the host has to count",
}
TORCH = {
    "cpu": "{name} = {name}.detach()  # stays on {device}",
    "item": "total += {name}.detach()  # .item() only where it is logged",
    "numpy": "{name} = {name}.detach()  # .numpy() only after the loop",
    "print": "if step % 100 == 0: print({name})",
    "bool": "x = torch.where({name}, a, b)  # in place of the if",
    "boolean_index": "{name} = torch.where(mask, {name}, 0)",
}
KERAS = {
    "cpu": 'with tf.device("{device}"): {name} = tf.identity({name})  # stays there',
    "item": "metric.update_state({name})  # .result() only where it is logged",
    "numpy": "metric.update_state({name})  # .numpy() only after the loop",
    "print": "if step % 100 == 0: print({name})",
    "bool": "x = tf.where({name}, a, b)  # in place of the if",
    "boolean_index": "{name} = tf.where(mask, {name}, 0)",
}


def waits(evidence: Evidence) -> Iterator[Finding]:
    """Report every line at which the host waits."""
    waiting = [copy for copy in facts.last(evidence).copies if copy.what in HOW and not facts.is_host(copy.source)]
    for copies in facts.grouped(waiting, lambda copy: (copy.what, copy.place.module, copy.place.source)):
        first = copies[0]
        devices = words.listed(list(dict.fromkeys(copy.source for copy in copies)))
        message = (
            f"{words.copied(copies)} {HOW[first.what]}, {words.amount(copies)}: the host waits for "
            f"{devices}{_share(evidence, copies)}."
        )
        fix = first.mended or _fix(evidence, first)
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


def _share(evidence: Evidence, copies: list[Copy]) -> str:
    """Return the share of the step's time that the waits take, if it is known and not negligible."""
    step = facts.last(evidence).seconds
    share = min(sum(copy.seconds for copy in copies) / step, 1.0) if step else 0.0
    return f", {share:.0%} of the step's time" if share >= WORTH else ""


def _fix(evidence: Evidence, copy: Copy) -> str:
    name = "loss" if copy.tensor.origin == "loss" or not copy.tensor.shape else words.variable(copy.tensor)
    if copy.what == "cpu" and name == "loss":
        return f"history.append({'loss.detach()' if evidence.side == 'torch' else 'loss'})  # without .cpu()"
    if copy.what == "cpu" and copy.place.phase == "loss":
        return f"{words.moved(evidence.side, 'target', copy.source)}  # the loss there, without .cpu()"
    lines = TORCH if evidence.side == "torch" else KERAS
    return lines[copy.what].format(name=name, device=copy.source)
