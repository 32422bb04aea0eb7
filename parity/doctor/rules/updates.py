"""Rules about what becomes of gradients: parameters without an optimizer, frozen ones, gradients that add up.

And about passes for one optimizer that reach the parameters of another one, as of a GAN.
"""

from collections.abc import Iterator, Sequence

from parity.doctor.evidence import Evidence, Step
from parity.doctor.evidence.ops import Call
from parity.doctor.evidence.training import Backward
from parity.doctor.finding import Finding
from parity.doctor.rules import words
from parity.doctor.rules.facts import backward_ran, grouped_by_module, make_finding, parameters, source_of
from parity.doctor.rules.replicas import held_elsewhere
from parity.trace.keys import MODEL


def no_optimizer(evidence: Evidence, ranks: Sequence[Evidence]) -> Iterator[Finding]:
    """Report parameters of a rank with a gradient that no optimizer applies, on this rank or for it on another."""
    optimizers = [optimizer for step in evidence.steps for optimizer in step.optimizers if optimizer.stepped]
    if not evidence.own_step or not optimizers:
        return
    held = {name for optimizer in optimizers for name in optimizer.parameters} | held_elsewhere(evidence, ranks)
    reached = {gradient.parameter for step in evidence.steps for gradient in step.gradients if gradient.state != "none"}
    parts = grouped_by_module(reached - held, evidence)
    if not parts:
        return
    names = [name for part in parts for name in part.names]
    modules = words.listed([part.module for part in parts])
    message = f"{words.subject(names, 'has', 'have')} a gradient ({modules}), but no optimizer updates "
    message += "it." if len(names) == 1 else "them."
    fix = f'optimizer.add_param_group({{"params": {words.code(parts[0].module)}.parameters()}})'
    if evidence.side == "keras":
        fix = "optimizer.apply_gradients(zip(gradients, model.trainable_variables))"
    yield make_finding("error", "learning.no_optimizer", parts[0].module, optimizers[0].source, message, fix)


def frozen(evidence: Evidence) -> Iterator[Finding]:
    """Report whole parts of the model that are not trained while others are."""
    parts: dict[str, list[bool]] = {}
    for weight in parameters(evidence):
        parts.setdefault(weight.module.partition(".")[0] or MODEL, []).append(weight.trained)
    still = [part for part, trained in parts.items() if not any(trained)]
    if still and backward_ran(evidence):
        number = words.count(sum(len(parts[part]) for part in still), "parameter")
        message = f"{words.subject(still, 'is', 'are')} frozen: {number}."
        layer = words.code(still[0])
        fix = f"{layer}.requires_grad_(True)" if evidence.side == "torch" else f"{layer}.trainable = True"
        yield make_finding("note", "learning.frozen", still[0], source_of(evidence, still[0]), message, fix)


def frozen_late(evidence: Evidence) -> Iterator[Finding]:
    """Report parameters that the model's own train() freezes, in a program that trains them."""
    names = evidence.frozen_by_train
    if evidence.own_step and names and backward_ran(evidence):
        trained = words.subject(names, "is", "are")
        message = f"{trained} trained, which the model's own train() would prevent if it were called before."
        where = grouped_by_module(names, evidence)[0].module
        fix = "model.train()  # before the optimizer is made"
        yield make_finding("warning", "learning.frozen_late", where, source_of(evidence, MODEL), message, fix)


def not_cleared(evidence: Evidence) -> Iterator[Finding]:
    """Report gradients of the step before that are still there when the first backward pass of a step adds to them."""
    first, second = (*evidence.steps, Step(), Step())[:2]
    if not evidence.own_step or not second.backwards or not any(optimizer.stepped for optimizer in first.optimizers):
        return
    held = {name for optimizer in first.optimizers for name in optimizer.parameters}
    kept = [name for name in second.backwards[0].kept if name in held]
    if kept:
        message = (
            f"The gradients of the step before are still there when the backward pass begins ({words.listed(kept)}): "
            "each step adds to those of all steps before."
        )
        source = second.backwards[0].source
        fix = f"{second.backwards[0].optimizer or 'optimizer'}.zero_grad()  # before this line"
        yield make_finding("error", "learning.not_cleared", "", source, message, fix)


def not_normalised(evidence: Evidence) -> Iterator[Finding]:
    """Report backward passes of one line that add up before an update without their losses being divided."""
    for step in evidence.steps:
        # In Keras the program itself adds up the gradients that its tapes return.
        held = {name for optimizer in step.optimizers if optimizer.stepped for name in optimizer.parameters}
        adding = [b for b in step.backwards[1:] if not b.scaled and (held & {*b.kept} or evidence.side == "keras")]
        together = [b for b in step.backwards if not b.scaled and adding and b.updates == adding[-1].updates]
        lines = [backward.source for backward in together]
        source = next((backward.source for backward in adding if lines.count(backward.source) > 1), "")
        if source and any(optimizer.stepped for optimizer in step.optimizers):
            number = lines.count(source)
            message = (
                f"{number} backward passes add up before the update, but their losses are not divided by {number}: "
                f"the gradients are {number} times those of one batch."
            )
            fix = f"(loss / {number}).backward()" if evidence.side == "torch" else f"loss = loss / {number}"
            divided = next((b.divided for b in together if b.source == source and b.divided), "")
            fix = divided.replace("{}", str(number)) or fix
            yield make_finding("warning", "learning.not_normalised", "", source, message, fix)


def undetached(evidence: Evidence) -> Iterator[Finding]:
    """Report a loss that reaches the modules which made its inputs, though another pass is to train those.

    As in a GAN whose fakes are not detached in the step of the discriminator. The generator's own pass reaches the
    discriminator as well, and must.
    """
    for step in evidence.steps:
        for number, backward in enumerate(step.backwards):
            later = [other for other in step.backwards if other is not backward]
            for a, b in backward.feeds:
                own = set(backward.updated) == {a} and [b, a] not in backward.feeds
                if own and any(_trains(other, a, b, step.failure is not None) for other in later):
                    yield _of_another(step, number, a, b)
                    return


def _trains(backward: Backward, a: str, b: str, failed: bool) -> bool:
    """Return whether a pass through modules of optimizer a is there to update those of b alone."""
    updates = b in backward.updated or (failed and not backward.updated)
    return updates and a not in backward.updated and [a, b] in backward.feeds


def _of_another(step: Step, number: int, a: str, b: str) -> Finding:
    backward, held = step.backwards[number], step.optimizers[int(a)].parameters
    calls = (call for call in step.calls if call.backwards == number and call.detached)
    call = next((call for call in calls if _enters(step, call, a)), None)
    kept = {name for other in step.backwards[number + 1 :] for name in other.kept} & {
        *step.optimizers[int(b)].parameters
    }
    names = words.listed(step.optimizers[int(b)].parameters)
    message = (
        f"The loss at {backward.source} is there to update {words.listed(held)}, but its backward pass goes on to "
        f"{names}, which made the input: "
    )
    message += "these gradients are added to their own." if kept else "that is computed in vain, or fails."
    source = call.detached.source if call and call.detached else backward.source
    fix = call.detached.fix if call and call.detached else "loss = criterion(critic(made.detach()), target)"
    return make_finding("error" if kept or step.failure else "warning", "learning.undetached", "", source, message, fix)


def _enters(step: Step, call: Call, a: str) -> bool:
    """Return whether a call leads from outside into the modules whose parameters an optimizer holds."""
    around = call.module.rpartition(".")[0]
    makers = {words.owner(tensor) for tensor in call.inputs}
    return _is_held(step, call.module, a) and not any(_is_held(step, name, a) for name in (around, *makers) if name)


def _is_held(step: Step, module: str, a: str) -> bool:
    """Return whether an optimizer holds all parameters of a module, and it has some."""
    names = {
        str(i): [n for n in each.parameters if n.startswith(f"{module}.")] for i, each in enumerate(step.optimizers)
    }
    return bool(names[a]) and not any(names[i] for i in names if i != a)
