"""Training mode where nothing is trained, and eval mode where something is."""

import re
from collections.abc import Iterator

from parity.core.names import MODEL
from parity.doctor.evidence import Evidence, Module
from parity.doctor.finding import Finding, Severity
from parity.doctor.rules import words
from parity.doctor.rules.facts import backward_ran, found, module, root_call, source_of

CARES = re.compile("Dropout|BatchNorm")  # kinds that compute something else in eval mode


def in_eval(evidence: Evidence) -> Iterator[Finding]:
    """A backward pass through a model, or parts of it, in eval mode."""
    if not backward_ran(evidence):
        return
    caring = [m for m in evidence.modules if CARES.search(m.kind)]
    idle = [m for m in caring if not m.training and not m.facts.get("frozen")]
    whole = not module(evidence, MODEL).training
    if whole and (caring or evidence.side == "torch"):
        severity: Severity = "warning" if caring else "note"
        message = f"The whole model is in eval mode while a backward pass runs: {_effect(caring)}."
        fix = "model.train()" if evidence.side == "torch" else "output = model(x, training=True)"
        yield found(severity, "mode.eval", MODEL, _called(evidence), message, fix)
    elif idle:
        subject = words.subject([m.name for m in idle], "is", "are")
        message = f"{subject} in eval mode while the rest trains: {_effect(idle)}."
        name = words.code(idle[0].name)
        fix = f"{name}.train()" if evidence.side == "torch" else f"x = {name}(x, training=True)"
        yield found("note", "mode.eval", idle[0].name, source_of(evidence, idle[0].name), message, fix)


def in_train(evidence: Evidence) -> Iterator[Finding]:
    """A step that computes without gradients, in training mode."""
    caring = [m for m in evidence.modules if CARES.search(m.kind) and m.training]
    # Where there is no tape, nothing is cut off either.
    cut = evidence.side == "keras" or any(cut.what == "no_grad" for step in evidence.steps for cut in step.cuts)
    over = evidence.steps and not any(step.failure for step in evidence.steps)
    if evidence.own_step and over and caring and cut and not backward_ran(evidence):
        message = (
            f"The step runs without gradients and no backward pass, in training mode: {_effect(caring, still=True)}."
        )
        fix = "model.eval()" if evidence.side == "torch" else "output = model(x, training=False)"
        yield found("warning", "mode.train", MODEL, _called(evidence), message, fix)


def _effect(modules: list[Module], still: bool = False) -> str:
    """What the mode makes of the layers that care."""
    dropouts = [m for m in modules if "Dropout" in m.kind]
    norms = [m for m in modules if "BatchNorm" in m.kind]
    said = []
    if dropouts:
        verb = ("drops" if still else "does not drop") if len(dropouts) == 1 else ("drop" if still else "do not drop")
        said.append(f"{words.count(len(dropouts), 'dropout layer')} {verb}")
    if norms:
        verb = "use and move the batch's statistics" if still else "use running statistics and do not update them"
        said.append(f"{words.count(len(norms), 'batch norm')}: {verb}")
    return "; ".join(said) or "no layer of it computes differently now, one with dropout would"


def _called(evidence: Evidence) -> str:
    """The line that calls the model."""
    calls = [call for step in evidence.steps if (call := root_call(step))]
    return calls[0].source if calls else source_of(evidence, MODEL)
