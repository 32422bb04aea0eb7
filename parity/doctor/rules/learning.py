"""Rules about gradients: parameters that none reaches (by a cut, a send, an unused module), and what becomes of others.

They may have no optimizer, add up, or come from a pass for another optimizer, as of a GAN.
"""

from collections.abc import Iterator, Sequence

from parity.core.groups import by_key
from parity.doctor.evidence import Backward, Call, Cut, Evidence, Step, below
from parity.doctor.finding import Finding, Severity, finding_at, make_finding
from parity.doctor.rules import facts, words
from parity.doctor.rules.replicas import held_elsewhere
from parity.trace.keys import MODEL

# By kind of cut: what the tensor went through, and what the fixed line does instead.
CUTS = {
    "detach": (".detach()", "without .detach()"),
    "data": (".data", "without .data"),
    "no_grad": ("torch.no_grad()", "outside of torch.no_grad()"),
    "numpy": ("NumPy, which has no gradients", "in the framework's own ops"),
    "stop_gradient": ("tf.stop_gradient", "without tf.stop_gradient"),
    "stop_recording": ("tape.stop_recording()", "outside of tape.stop_recording()"),
    "no_tape": ("code outside of the tape", "within the tape"),
    "integers": ("integers, such as argmax returns, which have no gradients", "with a loss of the scores"),
    "send": ("a send, which has no backward", "and send its gradient back"),
    "receive": ("a receive, which has no backward", "and send its gradient back"),
}
SCORES = "loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)"
LOGGED = ("loss", "gradient")  # origins of tensors that programs detach in order to log them


def no_gradient(evidence: Evidence) -> Iterator[Finding]:
    """Report parameters that no backward pass reached, with the cut that explains it."""
    if any(step.distributed.startswith("ddp") for step in evidence.steps):
        return
    names = _in_every_step(evidence, "none")
    parts = facts.grouped_by_module(names - _copies(evidence, names), evidence)
    explained = [(part, _explains(evidence, part)) for part in parts]
    for group in facts.grouped(explained, lambda pair: pair[1].place.source if pair[1] else pair[0].module):
        yield _without_gradient(evidence, [part for part, _ in group], group[0][1])


def _copies(evidence: Evidence, names: set[str]) -> set[str]:
    """Return those of parameters without a gradient that copy others, as a target network or an average does."""
    kinds = {each.parameter: each.copy for step in evidence.steps for each in step.gradients if each.copy}
    copies = set()
    for part in facts.grouped_by_module(names, evidence):
        equal = [name for name in part.names if name in kinds]
        if any(kinds[name] == "copy" for name in equal):
            copies.update(equal)
        elif part.whole and facts.is_twin(evidence, part.module, by_inputs=True):
            copies.update(part.names)
    return copies


def _without_gradient(evidence: Evidence, parts: list[facts.ModuleParameters], cut: Cut | None) -> Finding:
    parts = sorted(parts, key=lambda part: not part.whole)
    first, names = parts[0], [name for part in parts for name in part.names]
    subject = words.listed([part.module for part in parts if part.whole] or names)
    message = f"No gradient reaches {subject} ({words.count(len(names), 'parameter')}) though a backward pass ran"
    called = next((c.source for step in evidence.steps for c in step.calls if below(first.module, c.module)), None)
    if cut:
        message += f": {words.tensor(cut.tensor)} goes through {CUTS.get(cut.what, (cut.what,))[0]}."
        message += words.repeated(_times(evidence, cut))
    else:
        message += "." if called is not None or not first.whole else ": it is not called in the step."
    source, line = (cut.place.source, cut.mended) if cut else (called or facts.source_of(evidence, first.module), None)
    severity: Severity = "error" if first.whole else "warning"
    fix = _reached(evidence, words.code(first.module), cut)
    return make_finding(severity, "learning.no_gradient", first.module, source, message, fix, line)


def _reached(evidence: Evidence, layer: str, cut: Cut | None) -> str:
    is_torch = evidence.side == "torch"
    if not cut:
        frozen = f"in forward, or {layer}.requires_grad_(False)"
        return f"x = {layer}(x)  # {frozen if is_torch else f'within the tape, or {layer}.trainable = False'}"
    if cut.what == "integers":
        return "loss = F.cross_entropy(scores, labels)" if is_torch else SCORES
    instead = CUTS.get(cut.what, ("", f"without {cut.what}"))[1]
    if cut.what in ("detach", "numpy"):
        framework = "torch" if is_torch else "tf"
        return f"x = {framework}.tanh(x)  # {framework}'s own functions, {instead}"
    return f"x = {layer}(x)  # {instead}"


def _times(evidence: Evidence, cut: Cut) -> int:
    """Return how often the line of a cut makes such cuts in a step."""
    kind = cut.what, cut.place.source
    return max(facts.number(c for c in step.cuts if (c.what, c.place.source) == kind) for step in evidence.steps)


def _in_every_step(evidence: Evidence, state: str) -> set[str]:
    """Return the parameters whose gradient had a state in each step with a backward pass."""
    steps = [step for step in evidence.steps if step.backwards and not step.failure]
    by_step = [{each.parameter for each in step.gradients if each.state == state} for step in steps]
    return set.intersection(*by_step) if by_step else set()


def _explains(evidence: Evidence, part: facts.ModuleParameters) -> Cut | None:
    """Return the cut that explains a module: of its output, or within it; else the only one there is."""
    all_cuts = [cut for step in evidence.steps for cut in step.cuts]
    cuts = [cut for cut in all_cuts if cut.tensor.origin not in LOGGED and cut.what != "integers"]
    if part.module == MODEL and part.whole and not cuts:
        cuts = all_cuts  # the whole model is without gradient and nothing else is cut, so the loss itself must be
    for cut in cuts:
        module = words.owner(cut.tensor)
        if module and module != MODEL and (below(part.module, module) or below(module, part.module)):
            return cut
    inside = [cut for cut in cuts if cut.place.module not in ("", MODEL) and below(part.module, cut.place.module)]
    only = cuts if len({cut.place.source for cut in cuts}) == 1 else []
    return next(iter(inside or only), None)


def unused_ddp(evidence: Evidence) -> Iterator[Finding]:
    """Report parameters without a gradient under DistributedDataParallel, which waits for all of them."""
    if any(step.distributed == "ddp" for step in evidence.steps):
        names = {g.parameter for step in evidence.steps if step.backwards for g in step.gradients if g.state == "none"}
        if parts := facts.grouped_by_module(names, evidence):
            yield unused_under_ddp(evidence, parts)


def unused_under_ddp(evidence: Evidence, parts: list[facts.ModuleParameters]) -> Finding:
    """Return the finding; without parts if it is not known which parameters are unused."""
    names = [name for part in parts for name in part.names]
    what = words.subject(names, "has", "have") if names else "Some parameters have"
    message = f"{what} no gradient under DistributedDataParallel: the next step waits for them and fails."
    where = parts[0].module if parts else MODEL
    fix = "model = DistributedDataParallel(model, find_unused_parameters=True)"
    return make_finding("error", "learning.unused_ddp", where, facts.source_of(evidence, where), message, fix)


def send_without_backward(evidence: Evidence) -> Iterator[Finding]:
    """Report ranks that send activations on and run no backward pass for them."""
    for step in evidence.steps:
        cut = next((cut for cut in step.cuts if cut.what == "send"), None)
        if cut and not step.backwards and not step.failure:
            count = words.count(sum(weight.trained for weight in facts.parameters(evidence)), "parameter")
            effect = f"no gradient comes back to its {count}, which never learn.{words.repeated(_times(evidence, cut))}"
            message = f"Rank {evidence.rank} sends {words.tensor(cut.tensor)} on and runs no backward pass: {effect}"
            fix = "dist.recv(gradient, src=next_rank); output.backward(gradient)"
            yield finding_at("error", "learning.send_without_backward", cut.place, message, fix)


def zero_gradient(evidence: Evidence) -> Iterator[Finding]:
    """Report modules all of whose gradients are zero in every step."""
    parts = [part for part in facts.grouped_by_module(_in_every_step(evidence, "zero"), evidence) if part.whole]
    if parts:
        modules, count = words.listed([part.module for part in parts]), sum(len(part.names) for part in parts)
        why = "a ReLU after it that is never positive, or a weight or mask of zeros"
        message = f"All gradients of {modules} ({words.count(count, 'parameter')}) are 0. Usual reasons are {why}."
        layer = "nn.LeakyReLU()" if evidence.side == "torch" else "keras.layers.LeakyReLU()"
        fix, first = f"x = {layer}(x)  # where a ReLU is never positive", parts[0].module
        yield make_finding("warning", "learning.zero_gradient", first, facts.source_of(evidence, first), message, fix)


def no_optimizer(evidence: Evidence, ranks: Sequence[Evidence]) -> Iterator[Finding]:
    """Report parameters of a rank with a gradient that no optimizer applies, on this rank or for it on another."""
    optimizers = [optimizer for step in evidence.steps for optimizer in step.optimizers if optimizer.stepped]
    if not evidence.own_step or not optimizers:
        return
    held = {name for optimizer in optimizers for name in optimizer.parameters} | held_elsewhere(evidence, ranks)
    reached = {gradient.parameter for step in evidence.steps for gradient in step.gradients if gradient.state != "none"}
    if parts := facts.grouped_by_module(reached - held, evidence):
        names, modules = [name for part in parts for name in part.names], words.listed([part.module for part in parts])
        subject, them = words.subject(names, "has", "have"), words.agree(len(names), "it")
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
        when = f"are still there when the backward pass begins ({words.listed(kept)})"
        message = f"The gradients of the step before {when}: each step adds to those of all steps before."
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
            effect = f"are not divided by {number}: the gradients are {number} times those of one batch"
            message = f"{number} backward passes add up before the update, but their losses {effect}."
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
    further = f"its backward pass goes on to {words.listed(makers)}, which made the input: {effect}"
    message = f"The loss at {backward.source} is there to update {words.listed(held)}, but {further}."
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
    numbered = enumerate(step.optimizers)
    return {str(i) for i, held in numbered if any(name.startswith(f"{module}.") for name in held.parameters)} == {a}
