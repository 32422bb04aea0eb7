"""Rules about parameters without a gradient: a cut, a send without backward, a module that is not called."""

from collections.abc import Iterator

from parity.doctor.evidence import Cut, Evidence, below
from parity.doctor.finding import Finding, Severity, finding_at, make_finding
from parity.doctor.rules import facts, words
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
    """Return the code with which a gradient reaches the parameters of a layer."""
    if cut and cut.what == "integers":
        return "loss = F.cross_entropy(scores, labels)" if evidence.side == "torch" else SCORES
    if cut and cut.what in ("detach", "numpy"):
        framework = "torch" if evidence.side == "torch" else "tf"
        return f"x = {framework}.tanh(x)  # {framework}'s own functions, {CUTS[cut.what][1]}"
    if cut:
        return f"x = {layer}(x)  # {CUTS.get(cut.what, ('', 'without ' + cut.what))[1]}"
    if evidence.side == "keras":
        return f"x = {layer}(x)  # within the tape, or {layer}.trainable = False"
    return f"x = {layer}(x)  # in forward, or {layer}.requires_grad_(False)"


def _times(evidence: Evidence, cut: Cut) -> int:
    """Return how often the line of a cut makes such cuts in a step."""
    kind = cut.what, cut.place.source
    return max(facts.number(c for c in step.cuts if (c.what, c.place.source) == kind) for step in evidence.steps)


def _in_every_step(evidence: Evidence, state: str) -> set[str]:
    """Return the parameters whose gradient had a state in each step with a backward pass."""
    by_step = [
        {gradient.parameter for gradient in step.gradients if gradient.state == state}
        for step in evidence.steps
        if step.backwards and not step.failure
    ]
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
            count = words.count(len([weight for weight in facts.parameters(evidence) if weight.trained]), "parameter")
            message = (
                f"Rank {evidence.rank} sends {words.tensor(cut.tensor)} on and runs no backward pass: no gradient "
                f"comes back to its {count}, which never learn.{words.repeated(_times(evidence, cut))}"
            )
            fix = "dist.recv(gradient, src=next_rank); output.backward(gradient)"
            yield finding_at("error", "learning.send_without_backward", cut.place, message, fix)


def zero_gradient(evidence: Evidence) -> Iterator[Finding]:
    """Report modules all of whose gradients are zero in every step."""
    parts = [part for part in facts.grouped_by_module(_in_every_step(evidence, "zero"), evidence) if part.whole]
    if parts:
        count = sum(len(part.names) for part in parts)
        modules = words.listed([part.module for part in parts])
        message = (
            f"All gradients of {modules} ({words.count(count, 'parameter')}) are 0. Usual reasons are a ReLU after it "
            "that is never positive, or a weight or mask of zeros."
        )
        layer = "nn.LeakyReLU()" if evidence.side == "torch" else "keras.layers.LeakyReLU()"
        fix = f"x = {layer}(x)  # where a ReLU is never positive"
        first = parts[0].module
        yield make_finding("warning", "learning.zero_gradient", first, facts.source_of(evidence, first), message, fix)
