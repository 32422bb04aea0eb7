"""Rules about where the weights are: all on one device, unevenly distributed, or on none of the GPUs."""

from collections.abc import Iterator, Sequence

from parity.core.groups import by_key
from parity.doctor.evidence import Evidence, Weight
from parity.doctor.finding import Finding, Severity, finding_at, make_finding
from parity.doctor.rules import facts, words
from parity.trace.keys import MODEL

UNEVEN = 3  # ratio of the largest share of parameters to the smallest that counts as uneven
NOT_SOFT = "tf.config.set_soft_device_placement(False)  # then it raises instead"


def one_device(evidence: Evidence) -> Iterator[Finding]:
    """Report that every parameter is on one GPU though there are several."""
    bytes_by_device, devices = bytes_on(facts.parameters(evidence)), facts.gpus(evidence)
    modules = {weight.module for weight in facts.parameters(evidence)}
    if len(devices) < 2 or len(bytes_by_device) != 1 or len(modules) < 2:
        return
    (only,) = bytes_by_device
    ran = {output.device for step in evidence.steps for call in step.calls for output in call.outputs}
    several_compute = sum(not facts.is_host(device) for device in ran) > 1  # modules without parameters do
    if facts.is_host(only) or facts.spread(evidence) or several_compute:
        return
    shares = ", ".join(f"{device} {words.size(bytes_by_device.get(device, 0))}" for device in devices)
    subject = f"All {words.count(len(modules), 'module')} with parameters"
    message = f"{subject} are on {only}, though there are {len(devices)} GPUs: {shares}."
    parts = [move for move in evidence.moves if not move.whole] or evidence.moves
    source = parts[0].source if parts else facts.source_of(evidence, MODEL)
    # The program seems to be meant for several GPUs if it places parts of the model, or names several devices, or does
    # all the placing itself and has no step of its own.
    several = len({move.device for move in evidence.moves if not facts.is_host(move.device)}) > 1
    alone = not evidence.own_step and not evidence.moved and bool(evidence.moves)
    places_parts = sum(not move.whole for move in evidence.moves) >= 2
    is_meant_to_spread = several or (evidence.asked and (places_parts or alone))
    severity: Severity = "warning" if is_meant_to_spread else "note"
    if severity == "warning" or evidence.asked:
        fix = _distributed(evidence.side, len(devices))
        yield make_finding(severity, "placement.one_device", MODEL, source, message, fix)


def shared_gpu(ranks: Sequence[Evidence]) -> Iterator[Finding]:
    """Report ranks that hold their whole models on the same GPU, though there is one for each."""
    homes: dict[tuple[str, str], list[Evidence]] = {}
    for evidence in ranks:
        devices = {weight.tensor.device for weight in facts.parameters(evidence)}
        if len(devices) == 1 and not facts.is_host(*devices) and len(facts.gpus(evidence)) >= len(ranks):
            homes.setdefault((evidence.visible, devices.pop()), []).append(evidence)
    for (_, device), together in homes.items():
        if len(together) > 1:
            numbers, gpus = words.listed([str(evidence.rank) for evidence in together]), facts.gpus(together[0])
            message = (
                f"Ranks {numbers} have their models on {device}, though there are {len(gpus)} GPUs: they "
                'share one GPU and the others are idle. "cuda" means the current device, cuda:0 unless it is set.'
            )
            move = next((move for move in together[-1].moves if move.device == device), None)
            fix = "torch.cuda.set_device(torch.distributed.get_rank() % torch.cuda.device_count())  # before this line"
            if move and move.numbered:
                fix = 'device = torch.device("cuda", torch.distributed.get_rank())  # in place of the number'
            source = move.source if move else facts.source_of(together[-1], MODEL)
            yield make_finding("error", "placement.shared_gpu", MODEL, source, message, fix)


def _distributed(side: str, devices: int) -> str:
    if side == "torch":
        return f'layer = layer.to(f"cuda:{{i % {devices}}}")'
    return f'with tf.device(f"GPU:{{i % {devices}}}"): layer.build(input_shape)'


def lopsided(evidence: Evidence) -> Iterator[Finding]:
    """Report a GPU with several times as many parameters as another, if the modules could be distributed better."""
    weights = [weight for weight in facts.parameters(evidence) if not facts.is_host(weight.tensor.device)]
    bytes_by_device = bytes_on(weights)
    # A program that moves the whole model to one GPU and a branch to another does not try to distribute it.
    if len(bytes_by_device) < 2 or facts.spread(evidence) or any(move.whole for move in evidence.moves):
        return
    most, least = (choose(bytes_by_device, key=bytes_by_device.__getitem__) for choose in (max, min))
    # The modules would be more even if each, from the largest on, went to the emptiest device.
    modules, loads = facts.grouped(weights, lambda weight: weight.module), [0] * len(bytes_by_device)
    for size in sorted((sum(weight.tensor.bytes for weight in module) for module in modules), reverse=True):
        loads[loads.index(min(loads))] += size
    is_avoidable = max(loads) <= UNEVEN * min(loads)
    if bytes_by_device[most] <= UNEVEN * bytes_by_device[least] or not is_avoidable:
        return
    shares = ", ".join(f"{device} {words.size(bytes_by_device[device])}" for device in sorted(bytes_by_device))
    ratio = bytes_by_device[most] / bytes_by_device[least]
    message = f"{most} holds {ratio:.1f} times the parameters of {least}: {shares}."
    biggest = max((w for w in weights if w.tensor.device == most), key=lambda weight: weight.tensor.bytes)
    moves = [move.source for move in evidence.moves if move.device == most]
    source = moves[0] if moves else facts.source_of(evidence, biggest.module)
    fix = words.placed(evidence.side, words.code(biggest.module), least)
    yield make_finding("warning", "placement.lopsided", MODEL, source, message, fix)


def unused(evidence: Evidence) -> Iterator[Finding]:
    """Report GPUs that hold nothing and compute nothing, while at least two other devices are used."""
    step = facts.last(evidence)
    if facts.spread(evidence) or step.failure:
        return
    used = {weight.tensor.device for weight in evidence.weights}
    used |= {tensor.device for call in step.calls for tensor in call.outputs} | {copy.target for copy in step.copies}
    idle = [device for device in facts.gpus(evidence) if device not in used]
    if idle and sum(not facts.is_host(device) for device in used) >= 2:
        message = f"{words.subject(idle, 'holds', 'hold')} no weights and computed nothing."
        fix = _distributed(evidence.side, len(facts.gpus(evidence)))
        yield make_finding("note", "placement.unused", "", facts.source_of(evidence, MODEL), message, fix)


def soft(evidence: Evidence) -> Iterator[Finding]:
    """Report ops that TensorFlow ran on another device than the program asked for."""
    for step in evidence.steps:
        for ops in facts.by_line(step.soft):
            op, asked = ops[0], words.listed(list(dict.fromkeys(op.asked for op in ops)))
            missing = op.asked not in evidence.devices
            why = f"there is no {op.asked}" if missing else f"it cannot run on {op.asked}"
            subject = f"{words.count(facts.number(ops), 'op')} of this line ({op.operation} first)"
            silently = f"{why}, and TensorFlow does not report that"
            message = f"{subject} ran on {op.ran} and not on {asked} as asked: {silently}."
            fix = f'with tf.device("{op.ran}"): x = layer(x)' if missing else NOT_SOFT
            yield finding_at("warning", "placement.soft", op.place, message, fix)


def bytes_on(weights: list[Weight]) -> dict[str, int]:
    sizes = by_key((weight.tensor.device, weight.tensor.bytes) for weight in weights)
    return {device: sum(held) for device, held in sizes.items()}
