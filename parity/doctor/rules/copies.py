"""Copies that a step could do without: constants, parameters, activations that nobody sent."""

from collections.abc import Iterator

from parity.doctor.evidence import Copy, Evidence, Tensor
from parity.doctor.finding import Finding
from parity.doctor.rules import words
from parity.doctor.rules.facts import found, host, last, spread
from parity.doctor.rules.strays import strays

PASSING = (
    "input ",
    "output of ",
    "loss",
    "gradient",
    "parameter ",
)  # what is new in each step, or has a rule of its own


def constant(evidence: Evidence) -> Iterator[Finding]:
    """The same numbers sent from the host in each step."""
    astray = {stray.weight.name for stray in strays(evidence)}
    for copy in last(evidence).copies:
        to_gpu = host(copy.source) and not host(copy.target)
        if to_gpu and _fixed(copy, len(evidence.steps)) and _name(copy.tensor) not in astray:
            message = (
                f"{words.tensor(copy.tensor)}{words.made(copy.tensor)} is sent to {copy.target} in each step, "
                f"{words.times(copy.count)} ({words.size(copy.bytes)})."
            )
            fix = _kept(evidence.side, copy)
            yield found("warning", "copy.constant", copy.place.module, copy.place.source, message, fix)


def _fixed(copy: Copy, steps: int) -> bool:
    """Whether it is the same in each step: made there of nothing, or sent in the step before."""
    if copy.what == "constant":
        return True
    origin = copy.tensor.origin
    if copy.what != "to" or origin.startswith(PASSING):
        return False
    return bool(copy.again) or origin == "constant" or (origin.startswith("buffer ") and steps == 1)


def _kept(side: str, copy: Copy) -> str:
    """The line that keeps it on the device."""
    name = _name(copy.tensor)
    if name and side == "torch":
        path = words.code(name)
        return f'{path} = {path}.to("{copy.target}")  # once; model.to() moves a registered buffer too'
    if side == "torch":
        return 'self.register_buffer("value", value)  # in __init__, then model.to() moves it once'
    return f'with tf.device("{copy.target}"): self.value = tf.constant(value)  # once, in __init__'


def _name(tensor: Tensor) -> str:
    """The name of a weight."""
    kind, _, name = tensor.origin.partition(" ")
    return name if kind in ("parameter", "buffer") else ""


def parameter(evidence: Evidence) -> Iterator[Finding]:
    """A parameter that goes from device to device in each step."""
    if spread(evidence):
        return
    astray = {stray.weight.name for stray in strays(evidence)}
    lines: dict[str, list[Copy]] = {}
    for copy in last(evidence).copies:
        is_parameter = copy.what == "to" and copy.tensor.origin.startswith("parameter ")
        if is_parameter and _name(copy.tensor) not in astray:
            lines.setdefault(copy.place.source, []).append(copy)
    for source, copies in lines.items():
        first = copies[0]
        names = words.listed(list(dict.fromkeys(_name(copy.tensor) for copy in copies)))
        size = words.size(sum(copy.bytes for copy in copies))
        message = f"{names} {_goes(copies)} from {first.source} to {first.target} in each step ({size})."
        owner = words.owner(first.tensor)
        layer = words.code(owner)
        fix = f'{layer}.to("{first.target}")' if evidence.side == "torch" else _built(first.target, layer)
        yield found("warning", "copy.parameter", first.place.module or owner, source, message, fix)


def _goes(copies: list[Copy]) -> str:
    return "goes" if len({copy.tensor.origin for copy in copies}) == 1 else "go"


def _built(device: str, layer: str) -> str:
    return f'with tf.device("{device}"): {layer}.build(input_shape)'


def implicit(evidence: Evidence) -> Iterator[Finding]:
    """What TensorFlow moved between GPUs by itself in the forward pass, those of one line in one finding."""
    for source, copies in _by_line(evidence, ("forward", "loss", "other")).items():
        first, every = copies[0], sum(copy.count for copy in copies)
        message = (
            f"TensorFlow moved {words.tensor(first.tensor)} to {first.target} by itself, where the op runs that needs "
            f"it: {words.count(every, 'copy')} in a step ({words.size(sum(copy.bytes for copy in copies))})."
        )
        module = first.place.module
        layer = words.code(module) if module else "layer"
        fix = f'with tf.device("{first.source}"): x = {layer}(x)'
        yield found("warning", "copy.implicit", module, source, message, fix)


def backward(evidence: Evidence) -> Iterator[Finding]:
    """A backward pass that runs on another device than its forward; not where the forward is in the wrong place."""
    lines = {} if _by_line(evidence, ("forward",)) else _by_line(evidence, ("backward",))
    for source, copies in lines.items():
        first, every = copies[0], sum(copy.count for copy in copies)
        message = (
            f"The backward pass runs on {first.target}, the forward of {words.listed(_modules(copies))} ran on "
            f"{first.source}: {words.count(every, 'copy')} in a step ({words.size(sum(c.bytes for c in copies))})."
        )
        fix = (
            f'with tf.device("{first.source}"): gradients = tape.gradient(output, variables)  # a tape for each device'
        )
        yield found(
            "warning", "placement.backward", first.place.module or words.owner(first.tensor), source, message, fix
        )


def _by_line(evidence: Evidence, phases: tuple[str, ...]) -> dict[str, list[Copy]]:
    lines: dict[str, list[Copy]] = {}
    for copy in [] if spread(evidence) else last(evidence).copies:
        # Parameters that the program reads outside of the model, it wants where it reads them.
        meant = not copy.place.module and copy.tensor.origin.startswith("parameter ") and "backward" not in phases
        # A gradient goes back to where the activation came from; what the forward pass left should not have to move.
        meant = meant or (copy.place.phase == "backward" and copy.tensor.origin in ("gradient", ""))
        if copy.tensor.shape and _between_gpus(copy) and copy.place.phase in phases and not meant:
            lines.setdefault(copy.place.source, []).append(copy)
    return lines


def _modules(copies: list[Copy]) -> list[str]:
    names = [copy.place.module or words.owner(copy.tensor) for copy in copies]
    return list(dict.fromkeys(name for name in names if name)) or ["the model"]


def _between_gpus(copy: Copy) -> bool:
    return copy.what == "implicit" and copy.source != copy.target and not (host(copy.source) or host(copy.target))
