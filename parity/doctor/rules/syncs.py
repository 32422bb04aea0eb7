"""Rules about lines at which the host waits for the device in each step, and how much time that takes."""

from collections.abc import Iterator

from parity.doctor.evidence import Evidence
from parity.doctor.evidence.ops import Copy
from parity.doctor.finding import Finding
from parity.doctor.rules import words
from parity.doctor.rules.facts import is_host, last, make_finding

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
    for copy in last(evidence).copies:
        if copy.what in HOW and not is_host(copy.source):
            message = (
                f"{words.tensor(copy.tensor)} is {HOW[copy.what]}, {words.times(copy.count)} in a step "
                f"({words.size(copy.bytes)}): the host waits for {copy.source}{_share(evidence, copy)}."
            )
            fix = copy.mended.fix if copy.mended else _fix(evidence, copy)
            yield make_finding("warning", f"sync.{copy.what}", copy.place.module, copy.place.source, message, fix)


def _share(evidence: Evidence, copy: Copy) -> str:
    """Return the share of the step's time that the wait takes, if it is known and not negligible."""
    step = last(evidence).seconds
    share = min(copy.seconds / step, 1.0) if step else 0.0
    return f", {share:.0%} of the step's time" if share >= WORTH else ""


def _fix(evidence: Evidence, copy: Copy) -> str:
    name = "loss" if copy.tensor.origin == "loss" or not copy.tensor.shape else words.variable(copy.tensor)
    if copy.what == "cpu" and name == "loss":
        return f"history.append({'loss.detach()' if evidence.side == 'torch' else 'loss'})  # without .cpu()"
    if copy.what == "cpu" and copy.place.phase == "loss":
        return f"{words.moved(evidence.side, 'target', copy.source)}  # the loss there, without .cpu()"
    lines = TORCH if evidence.side == "torch" else KERAS
    return lines[copy.what].format(name=name, device=copy.source)
