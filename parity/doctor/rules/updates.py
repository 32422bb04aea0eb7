"""Rules about what becomes of gradients: parameters without an optimizer, frozen ones, gradients that add up.

And about passes for one optimizer that reach the parameters of another one, as of a GAN.
"""

from collections.abc import Iterator, Sequence

from parity.core.groups import by_key
from parity.doctor.evidence import Backward, Call, Evidence, Step
from parity.doctor.finding import Finding, Severity, make_finding
from parity.doctor.rules import facts, words
from parity.doctor.rules.replicas import held_elsewhere
from parity.trace.keys import MODEL


def no_optimizer(evidence: Evidence, ranks: Sequence[Evidence]) -> Iterator[Finding]:
    """Report parameters of a rank with a gradient that no optimizer applies, on this rank or for it on another."""
    optimizers = [optimizer for step in evidence.steps for optimizer in step.optimizers if optimizer.stepped]
    if not evidence.own_step or not optimizers:
        return
    held = {name for optimizer in optimizers for name in optimizer.parameters} | held_elsewhere(evidence, ranks)
    reached = {gradient.parameter for step in evidence.steps for gradient in step.gradients if gradient.state != "none"}
    parts = facts.grouped_by_module(reached - held, evidence)
    if not parts:
        return
    names = [name for part in parts for name in part.names]
    subject, them = words.subject(names, "has", "have"), words.agree(len(names), "it")
    modules = words.listed([part.module for part in parts])
    message = f"{subject} a gradient ({modules}), but no optimizer updates {them}."
    fix = f'optimizer.add_param_group({{"params": {words.code(parts[0].module)}.parameters()}})'
    if evidence.side == "keras":
        fix = "optimizer.apply_gradients(zip(gradients, model.trainable_variables))"
    yield make_finding("error", "learning.no_optimizer", parts[0].module, optimizers[0].source, message, fix)


def frozen(evidence: Evidence) -> Iterator[Finding]:
    """Report whole parts of the model that are not trained while others are."""
    parts = by_key((weight.module.partition(".")[0] or MODEL, weight.trained) for weight in facts.parameters(evidence))
    still = [part for part, trained in parts.items() if not any(trained)]
    if still and facts.backward_ran(evidence):
        number = words.count(sum(len(parts[part]) for part in still), "parameter")
        message = f"{words.subject(still, 'is', 'are')} frozen: {number}."
        layer = words.code(still[0])
        fix = f"{layer}.requires_grad_(True)" if evidence.side == "torch" else f"{layer}.trainable = True"
        yield make_finding("note", "learning.frozen", still[0], facts.source_of(evidence, still[0]), message, fix)


def frozen_late(evidence: Evidence) -> Iterator[Finding]:
    """Report parameters that the model's own train() freezes, in a program that trains them."""
    names = evidence.frozen_by_train
    if evidence.own_step and names and facts.backward_ran(evidence):
        trained = words.subject(names, "is", "are")
        message = f"{trained} trained, which the model's own train() would prevent if it were called before."
        where = facts.grouped_by_module(names, evidence)[0].module
        fix = "model.train()  # before the optimizer is made"
        yield make_finding("warning", "learning.frozen_late", where, facts.source_of(evidence, MODEL), message, fix)


def not_cleared(evidence: Evidence) -> Iterator[Finding]:
    """Report gradients of the step before that are still there when the first backward pass of a step adds to them."""
    first, second = (*evidence.steps, Step(), Step())[:2]
    if not evidence.own_step or not second.backwards or not any(optimizer.stepped for optimizer in first.optimizers):
        return
    held = {name for optimizer in first.optimizers for name in optimizer.parameters}
    backward = second.backwards[0]
    if kept := [name for name in backward.kept if name in held]:
        message = (
            f"The gradients of the step before are still there when the backward pass begins ({words.listed(kept)}): "
            "each step adds to those of all steps before."
        )
        fix = f"{backward.optimizer or 'optimizer'}.zero_grad()  # before this line"
        yield make_finding("error", "learning.not_cleared", "", backward.source, message, fix)


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
            generic = "(loss / {}).backward()" if evidence.side == "torch" else "loss = loss / {}"
            divided = next((b.divided for b in together if b.source == source and b.divided), generic)
            fix = divided.replace("{}", str(number))
            yield make_finding("warning", "learning.not_normalised", "", source, message, fix)


def undetached(evidence: Evidence) -> Iterator[Finding]:
    """Report a loss that reaches the modules which made its inputs, though another pass is to train those.

    As in a GAN whose fakes are not detached in the step of the discriminator. The generator's own pass reaches the
    discriminator as well, and must.
    """
    for step in evidence.steps:
        for number, backward in enumerate(step.backwards):
            rest = [candidate for candidate in step.backwards if candidate is not backward]
            for a, b in backward.feeds:
                own = set(backward.updated) == {a} and [b, a] not in backward.feeds
                if own and any(_trains(candidate, a, b, step.failure is not None) for candidate in rest):
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
    makers = step.optimizers[int(b)].parameters
    kept = {name for later in step.backwards[number + 1 :] for name in later.kept}.intersection(makers)
    effect = "these gradients are added to their own" if kept else "that is computed in vain, or fails"
    message = (
        f"The loss at {backward.source} is there to update {words.listed(held)}, but its backward pass goes on to "
        f"{words.listed(makers)}, which made the input: {effect}."
    )
    fix, line = "loss = criterion(critic(made.detach()), target)", call.detached if call else None
    severity: Severity = "error" if kept or step.failure else "warning"
    return make_finding(severity, "learning.undetached", "", backward.source, message, fix, line)


def _enters(step: Step, call: Call, a: str) -> bool:
    """Return whether a call leads from outside into the modules whose parameters an optimizer holds."""
    around = call.module.rpartition(".")[0]
    makers = {words.owner(tensor) for tensor in call.inputs}
    return _is_held(step, call.module, a) and not any(_is_held(step, name, a) for name in (around, *makers) if name)


def _is_held(step: Step, module: str, a: str) -> bool:
    """Return whether an optimizer holds all parameters of a module, and it has some."""
    holders = {
        str(number)
        for number, optimizer in enumerate(step.optimizers)
        if any(name.startswith(f"{module}.") for name in optimizer.parameters)
    }
    return holders == {a}
