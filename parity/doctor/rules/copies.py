"""Rules about copies that a step could do without: constants, parameters, activations that TensorFlow moves itself."""

from collections.abc import Iterable, Iterator

from parity.doctor.evidence import Copy, Evidence, Tensor
from parity.doctor.finding import Finding, finding_at, make_finding
from parity.doctor.rules import facts, words
from parity.doctor.rules.misplaced import misplaced_weights

# Origins of tensors that are new in each step, or for which there is another rule.
NOT_CONSTANT = ("input ", "output of ", "loss", "gradient", "parameter ")


def constant(evidence: Evidence) -> Iterator[Finding]:
    """Report values that do not change and are sent from the host in each step."""
    misplaced = {weight.name for weight, _ in misplaced_weights(evidence)}
    constants = [copy for copy in facts.sent(evidence) if _is_constant(copy, len(evidence.steps))]
    for copies in facts.by_line(copy for copy in constants if _name(copy.tensor) not in misplaced):
        first, targets = copies[0], words.listed(list(dict.fromkeys(copy.target for copy in copies)))
        made = words.made(first.tensor)
        message = f"{words.copied(copies)} sent to {targets}, {words.amount(copies)}{made}."
        yield finding_at("warning", "copy.constant", first.place, message, _kept_on_device(evidence.side, first))


def _is_constant(copy: Copy, steps: int) -> bool:
    """Return whether a copy has the same values in each step: created there as a constant, or sent before as well."""
    if copy.what == "constant":
        return True
    origin = copy.tensor.origin
    if copy.what != "to" or origin.startswith(NOT_CONSTANT):
        return False
    return bool(copy.again) or origin == "constant" or (origin.startswith("buffer ") and steps == 1)


def _kept_on_device(side: str, copy: Copy) -> str:
    """Return the code that keeps the values on the device."""
    name = _name(copy.tensor)
    if name and side == "torch":
        path = words.code(name)
        return f'{path} = {path}.to("{copy.target}")  # once; model.to() moves a registered buffer too'
    if side == "torch":
        return 'self.register_buffer("value", value)  # in __init__, then model.to() moves it once'
    return f'with tf.device("{copy.target}"): self.value = tf.constant(value)  # once, in __init__'


def _name(tensor: Tensor) -> str:
    """Return the name of a weight; "" for other tensors."""
    kind, _, name = tensor.origin.partition(" ")
    return name if kind in ("parameter", "buffer") else ""


def parameter(evidence: Evidence) -> Iterator[Finding]:
    """Report parameters that go from device to device in each step."""
    if facts.spread(evidence):
        return
    misplaced = {weight.name for weight, _ in misplaced_weights(evidence)}
    moved = [c for c in facts.last(evidence).copies if c.what == "to" and c.tensor.origin.startswith("parameter ")]
    for copies in _by_source(copy for copy in moved if _name(copy.tensor) not in misplaced):
        first, by_parameter = copies[0], facts.grouped(copies, lambda copy: copy.tensor.origin)
        names = words.subject([_name(group[0].tensor) for group in by_parameter], "goes", "go")
        message = (
            f"{names} from {first.source} to {first.target} in each step ({words.size_of(copies)})."
            f"{words.repeated(max(map(facts.number, by_parameter)))}"
        )
        owner = words.owner(first.tensor)
        fix = words.placed(evidence.side, words.code(owner), first.target)
        yield make_finding("warning", "copy.parameter", first.place.module or owner, first.place.source, message, fix)


def _by_source(copies: Iterable[Copy]) -> list[list[Copy]]:
    return facts.grouped(copies, lambda copy: copy.place.source)


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
        message = (
            f"The backward pass runs on {first.target}, but the forward of {names} ran on {first.source}: "
            f"{words.count(facts.number(copies), 'copy')} in a step ({words.size_of(copies)})."
        )
        fix = (
            f'with tf.device("{first.source}"): gradients = tape.gradient(output, variables)  # a tape for each device'
        )
        yield make_finding("warning", "placement.backward", modules[0], first.place.source, message, fix)


def _between_gpus(evidence: Evidence, phases: tuple[str, ...]) -> list[list[Copy]]:
    """Return the copies between GPUs that TensorFlow makes on its own in some phases of the step, by line.

    Copies that the program intends are left out.
    """
    unintended = []
    for copy in [] if facts.spread(evidence) else facts.last(evidence).copies:
        # A parameter that the training script itself reads, outside of the model's forward, has to be on the device of
        # the code that reads it.
        is_intended = not copy.place.module and copy.tensor.origin.startswith("parameter ") and "backward" not in phases
        # A gradient has to return to the device that the activation came from. Values that the forward pass saved are
        # already on the device of their op and should not have to move.
        is_intended = is_intended or (copy.place.phase == "backward" and copy.tensor.origin in ("gradient", ""))
        is_between = copy.source != copy.target and not (facts.is_host(copy.source) or facts.is_host(copy.target))
        if copy.what == "implicit" and is_between and copy.tensor.shape and copy.place.phase in phases:
            unintended += [] if is_intended else [copy]
    return _by_source(unintended)
