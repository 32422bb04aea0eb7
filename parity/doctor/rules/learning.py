"""Parameters that no gradient reaches, or one of zero: a cut, a send without its backward, a module not called."""

from collections.abc import Iterator

from parity.core.names import MODEL
from parity.doctor.evidence import Cut, Evidence
from parity.doctor.finding import Finding, Severity
from parity.doctor.rules import words
from parity.doctor.rules.facts import Lack, below, found, lacking, parameters, source_of

CUTS = {
    "detach": (".detach()", "without .detach()"),
    "data": (".data", "without .data"),
    "no_grad": ("torch.no_grad()", "outside of torch.no_grad()"),
    "numpy": ("NumPy, which has no gradients", "in the framework's own ops"),
    "stop_gradient": ("tf.stop_gradient", "without tf.stop_gradient"),
    "stop_recording": ("tape.stop_recording()", "outside of tape.stop_recording()"),
    "no_tape": ("code outside of the tape", "within the tape"),
    "integers": ("whole numbers, as argmax makes, which have no gradients", "with a loss of the scores"),
    "send": ("a send, which has no backward", "and send its gradient back"),
    "receive": ("a receive, which has no backward", "and send its gradient back"),
}
SCORES = "loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)"
LOGGED = ("loss", "gradient")  # cut off to be looked at


def no_gradient(evidence: Evidence) -> Iterator[Finding]:
    """Parameters that no backward pass reached, with the cut that explains it."""
    if any(step.distributed.startswith("ddp") for step in evidence.steps):
        return
    groups: dict[str, list[tuple[Lack, Cut | None]]] = {}
    for lack in lacking(_in_every_step(evidence, ("none",)), evidence):
        cut = _explains(evidence, lack)
        groups.setdefault(cut.place.source if cut else lack.module, []).append((lack, cut))
    for group in groups.values():
        yield _without_gradient(evidence, [lack for lack, _ in group], group[0][1])


def _without_gradient(evidence: Evidence, lacks: list[Lack], cut: Cut | None) -> Finding:
    whole = any(lack.whole for lack in lacks)
    lacks = sorted(lacks, key=lambda lack: not lack.whole)
    first, names = lacks[0], [name for lack in lacks for name in lack.names]
    subject = words.listed([lack.module for lack in lacks if lack.whole]) if whole else words.listed(names)
    message = f"No gradient reaches {subject} ({words.count(len(names), 'parameter')}) though a backward pass ran"
    called = next((c.source for step in evidence.steps for c in step.calls if below(first.module, c.module)), None)
    if cut:
        message += f": {words.tensor(cut.tensor)} goes through {CUTS.get(cut.what, (cut.what,))[0]}."
    else:
        message += "." if called is not None or not whole else ": it is not called in the step."
    source = _source(cut) if cut else called or source_of(evidence, first.module)
    severity: Severity = "error" if whole else "warning"
    return found(severity, "learning.no_gradient", first.module, source, message, _reached(evidence, first, cut))


def _reached(evidence: Evidence, lack: Lack, cut: Cut | None) -> str:
    layer = words.code(lack.module)
    if cut and cut.mended:
        return cut.mended.fix
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


def _source(cut: Cut) -> str:
    """The line that is to be changed."""
    return cut.mended.source if cut.mended else cut.place.source


def _in_every_step(evidence: Evidence, states: tuple[str, ...]) -> set[str]:
    """The parameters whose gradient was so in each step that had a backward pass."""
    seen = [
        {gradient.parameter for gradient in step.gradients if gradient.state in states}
        for step in evidence.steps
        if step.backwards and not step.failure
    ]
    return set.intersection(*seen) if seen else set()


def _explains(evidence: Evidence, lack: Lack) -> Cut | None:
    """The cut behind a module: of its output, or in it; else the only one there is."""
    every = [cut for step in evidence.steps for cut in step.cuts]
    cuts = [cut for cut in every if cut.tensor.origin not in LOGGED and cut.what != "integers"]
    if lack.module == MODEL and lack.whole and not cuts:
        cuts = every  # the loss itself is cut off, or made of whole numbers: no accuracy beside it
    for cut in cuts:
        made = words.owner(cut.tensor)
        if made and made != MODEL and (below(lack.module, made) or below(made, lack.module)):
            return cut
    inside = [cut for cut in cuts if cut.place.module not in ("", MODEL) and below(lack.module, cut.place.module)]
    only = cuts if len({cut.place.source for cut in cuts}) == 1 else []
    return next(iter(inside or only), None)


def unused_ddp(evidence: Evidence) -> Iterator[Finding]:
    """Parameters without a gradient under DistributedDataParallel, which waits for all of them."""
    if any(step.distributed == "ddp" for step in evidence.steps):
        names = {g.parameter for step in evidence.steps if step.backwards for g in step.gradients if g.state == "none"}
        if lacks := lacking(names, evidence):
            yield unused_under_ddp(evidence, lacks)


def unused_under_ddp(evidence: Evidence, lacks: list[Lack]) -> Finding:
    """The finding. `lacks`: empty if it is not known what is unused."""
    names = [name for lack in lacks for name in lack.names]
    what = f"{words.listed(names)} {'has' if len(names) == 1 else 'have'}" if names else "Some parameters have"
    message = f"{what} no gradient under DistributedDataParallel: the next step waits for them and fails."
    where = lacks[0].module if lacks else MODEL
    fix = "model = DistributedDataParallel(model, find_unused_parameters=True)"
    return found("error", "learning.unused_ddp", where, source_of(evidence, where), message, fix)


def send_without_backward(evidence: Evidence) -> Iterator[Finding]:
    """A rank that sent what its parameters made and ran no backward pass on it."""
    for step in evidence.steps:
        cut = next((cut for cut in step.cuts if cut.what == "send"), None)
        if cut and not step.backwards and not step.failure:
            number = words.count(len([weight for weight in parameters(evidence) if weight.trained]), "parameter")
            message = (
                f"Rank {evidence.rank} sends {words.tensor(cut.tensor)} on and runs no backward pass: no gradient "
                f"comes back to its {number}, which never learn."
            )
            fix = "dist.recv(gradient, src=next_rank); output.backward(gradient)"
            if evidence.side == "keras":
                fix = "gradients = tape.gradient(output, variables, output_gradients=gradient)"
            where = cut.place.module
            yield found("error", "learning.send_without_backward", where, cut.place.source, message, fix)


def zero_gradient(evidence: Evidence) -> Iterator[Finding]:
    """Modules all of whose gradients are zero in every step."""
    lacks = [lack for lack in lacking(_in_every_step(evidence, ("zero",)), evidence) if lack.whole]
    if lacks:
        number = sum(len(lack.names) for lack in lacks)
        modules = words.listed([lack.module for lack in lacks])
        message = (
            f"All gradients of {modules} ({words.count(number, 'parameter')}) are 0: mostly a ReLU behind it that is "
            "never positive, or a weight or mask of zero."
        )
        layer = "nn.LeakyReLU()" if evidence.side == "torch" else "keras.layers.LeakyReLU()"
        fix = f"x = {layer}(x)  # where a ReLU is never positive"
        first = lacks[0].module
        yield found("warning", "learning.zero_gradient", first, source_of(evidence, first), message, fix)
