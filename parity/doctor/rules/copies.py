"""Rules about copies that a step could do without: constants, parameters, activations that TensorFlow moves itself."""

from collections.abc import Iterator

from parity.doctor.evidence import Evidence
from parity.doctor.evidence.common import Tensor
from parity.doctor.evidence.ops import Copy
from parity.doctor.finding import Finding
from parity.doctor.rules import words
from parity.doctor.rules.facts import by_line, grouped, is_host, last, make_finding, number, spread
from parity.doctor.rules.misplaced import misplaced_weights

# Origins of tensors that are new in each step, or for which there is another rule.
NOT_CONSTANT = (
    "input ",
    "output of ",
    "loss",
    "gradient",
    "parameter ",
)


def constant(evidence: Evidence) -> Iterator[Finding]:
    """Report values that do not change and are sent from the host in each step."""
    misplaced = {entry.weight.name for entry in misplaced_weights(evidence)}
    sent = [copy for copy in last(evidence).copies if is_host(copy.source) and not is_host(copy.target)]
    constants = [c for c in sent if _is_constant(c, len(evidence.steps)) and _name(c.tensor) not in misplaced]
    for copies in by_line(constants):
        first, targets = copies[0], words.listed(list(dict.fromkeys(copy.target for copy in copies)))
        message = (
            f"{words.tensors([copy.tensor for copy in copies], 'is', 'are')} sent to {targets}, "
            f"{words.often(number(copies))} ({words.size(sum(c.bytes for c in copies))}){words.made(first.tensor)}."
        )
        fix = _kept_on_device(evidence.side, first)
        yield make_finding("warning", "copy.constant", first.place.module, first.place.source, message, fix)


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
    if spread(evidence):
        return
    misplaced = {entry.weight.name for entry in misplaced_weights(evidence)}
    lines: dict[str, list[Copy]] = {}
    for copy in last(evidence).copies:
        is_parameter = copy.what == "to" and copy.tensor.origin.startswith("parameter ")
        if is_parameter and _name(copy.tensor) not in misplaced:
            lines.setdefault(copy.place.source, []).append(copy)
    for source, copies in lines.items():
        first = copies[0]
        names = words.listed(list(dict.fromkeys(_name(copy.tensor) for copy in copies)))
        size = words.size(sum(copy.bytes for copy in copies))
        each = max(map(number, grouped(copies, lambda copy: copy.tensor.origin)))
        message = (
            f"{names} {_goes(copies)} from {first.source} to {first.target} in each step ({size})."
            f"{words.repeated(each)}"
        )
        owner = words.owner(first.tensor)
        layer = words.code(owner)
        fix = f'{layer}.to("{first.target}")' if evidence.side == "torch" else _built(first.target, layer)
        yield make_finding("warning", "copy.parameter", first.place.module or owner, source, message, fix)


def _goes(copies: list[Copy]) -> str:
    return "goes" if len({copy.tensor.origin for copy in copies}) == 1 else "go"


def _built(device: str, layer: str) -> str:
    return f'with tf.device("{device}"): {layer}.build(input_shape)'


def implicit(evidence: Evidence) -> Iterator[Finding]:
    """Report what TensorFlow moves between GPUs by itself in the forward pass, the copies of one line together."""
    for source, copies in _by_line(evidence, ("forward", "loss", "other")).items():
        first = copies[0]
        message = (
            f"TensorFlow moved {words.tensor(first.tensor)} to {first.target} on its own, because an op that needs it "
            f"runs there: {words.count(number(copies), 'copy')} in a step "
            f"({words.size(sum(copy.bytes for copy in copies))})."
        )
        module = first.place.module
        layer = words.code(module) if module else "layer"
        fix = f'with tf.device("{first.source}"): x = {layer}(x)'
        yield make_finding("warning", "copy.implicit", module, source, message, fix)


def backward(evidence: Evidence) -> Iterator[Finding]:
    """Report a backward pass on another device than its forward, unless the forward itself is misplaced."""
    lines = {} if _by_line(evidence, ("forward",)) else _by_line(evidence, ("backward",))
    for source, copies in lines.items():
        first = copies[0]
        message = (
            f"The backward pass runs on {first.target}, but the forward of {words.listed(_modules(copies))} ran on "
            f"{first.source}: {words.count(number(copies), 'copy')} in a step "
            f"({words.size(sum(copy.bytes for copy in copies))})."
        )
        fix = (
            f'with tf.device("{first.source}"): gradients = tape.gradient(output, variables)  # a tape for each device'
        )
        yield make_finding(
            "warning", "placement.backward", first.place.module or words.owner(first.tensor), source, message, fix
        )


def _by_line(evidence: Evidence, phases: tuple[str, ...]) -> dict[str, list[Copy]]:
    """Return the copies between GPUs that TensorFlow makes on its own in some phases of the step, by line.

    Copies that the program intends are left out.
    """
    lines: dict[str, list[Copy]] = {}
    for copy in [] if spread(evidence) else last(evidence).copies:
        # A parameter that the training script itself reads, outside of the model's forward, has to be on the device of
        # the code that reads it.
        is_intended = not copy.place.module and copy.tensor.origin.startswith("parameter ") and "backward" not in phases
        # A gradient has to return to the device that the activation came from. Values that the forward pass saved are
        # already on the device of their op and should not have to move.
        is_intended = is_intended or (copy.place.phase == "backward" and copy.tensor.origin in ("gradient", ""))
        if copy.tensor.shape and _between_gpus(copy) and copy.place.phase in phases and not is_intended:
            lines.setdefault(copy.place.source, []).append(copy)
    return lines


def _modules(copies: list[Copy]) -> list[str]:
    names = [copy.place.module or words.owner(copy.tensor) for copy in copies]
    return list(dict.fromkeys(name for name in names if name)) or ["the model"]


def _between_gpus(copy: Copy) -> bool:
    return copy.what == "implicit" and copy.source != copy.target and not (is_host(copy.source) or is_host(copy.target))
