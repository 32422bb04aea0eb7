"""Rules about lines at which the host waits for the device in each step, and how much time that takes."""

from collections.abc import Iterator

from parity.doctor.evidence import Evidence
from parity.doctor.evidence.ops import Copy
from parity.doctor.finding import Finding
from parity.doctor.rules import words
from parity.doctor.rules.facts import by_line, grouped, is_host, last, make_finding, number

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
    waiting = [copy for copy in last(evidence).copies if copy.what in HOW and not is_host(copy.source)]
    for copies in grouped(waiting, lambda copy: (copy.what, copy.place.module, copy.place.source)):
        first = copies[0]
        devices = words.listed(list(dict.fromkeys(copy.source for copy in copies)))
        message = (
            f"{words.tensors([copy.tensor for copy in copies], 'is', 'are')} {HOW[first.what]}, "
            f"{words.often(number(copies))} ({words.size(sum(copy.bytes for copy in copies))}): the host waits for "
            f"{devices}{_share(evidence, copies)}."
        )
        fix = first.mended.fix if first.mended else _fix(evidence, first)
        yield make_finding("warning", f"sync.{first.what}", first.place.module, first.place.source, message, fix)


def races(evidence: Evidence) -> Iterator[Finding]:
    """Report copies to the host that are read before they are complete."""
    for copies in by_line(last(evidence).races):
        first = copies[0]
        message = (
            f"{words.tensor(first.tensor)} is copied to the host with non_blocking=True, and {first.read} reads the "
            f"copy without waiting for it: what it reads may be old numbers.{words.repeated(number(copies))}"
        )
        fix = first.mended.fix if first.mended else "torch.cuda.synchronize()  # after this line"
        yield make_finding("error", "sync.race", first.place.module, first.place.source, message, fix)


def _share(evidence: Evidence, copies: list[Copy]) -> str:
    """Return the share of the step's time that the waits take, if it is known and not negligible."""
    step = last(evidence).seconds
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
