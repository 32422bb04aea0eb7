"""Rules about training mode where nothing is trained, eval mode where something is, and dropout in eval mode."""

import re
from collections.abc import Iterator

from parity.doctor.evidence import Evidence, Module
from parity.doctor.finding import Finding, Severity, finding_at, make_finding
from parity.doctor.rules import facts, words
from parity.trace.keys import MODEL

CARES = re.compile("Dropout|BatchNorm")  # kinds of modules that compute something else in eval mode


def in_eval(evidence: Evidence) -> Iterator[Finding]:
    """Report a backward pass through a model, or parts of it, in eval mode."""
    if not facts.backward_ran(evidence):
        return
    sensitive = [m for m in evidence.modules if CARES.search(m.kind)]
    in_eval_mode = [m for m in sensitive if not m.training and not m.facts.get("frozen")]
    whole = not facts.module(evidence, MODEL).training
    if whole and (sensitive or evidence.side == "torch"):
        severity: Severity = "warning" if sensitive else "note"
        message = f"The whole model is in eval mode while a backward pass runs: {_effect(sensitive)}."
        fix = "model.train()" if evidence.side == "torch" else "output = model(x, training=True)"
        yield make_finding(severity, "mode.eval", MODEL, _called(evidence), message, fix)
    elif in_eval_mode:
        names = [m.name for m in in_eval_mode]
        message = f"{words.subject(names, 'is', 'are')} in eval mode while the rest trains: {_effect(in_eval_mode)}."
        layer = words.code(names[0])
        fix = f"{layer}.train()" if evidence.side == "torch" else f"x = {layer}(x, training=True)"
        yield make_finding("note", "mode.eval", names[0], facts.source_of(evidence, names[0]), message, fix)


def in_train(evidence: Evidence) -> Iterator[Finding]:
    """Report a step that computes in training mode, but without gradients."""
    sensitive = [m for m in evidence.modules if CARES.search(m.kind) and m.training]
    # In Keras there are no gradients unless a tape records; then no cut is noted either.
    cut = evidence.side == "keras" or any(cut.what == "no_grad" for step in evidence.steps for cut in step.cuts)
    over = evidence.steps and not any(step.failure for step in evidence.steps)
    if evidence.own_step and over and sensitive and cut and not facts.backward_ran(evidence):
        message = (
            f"The step computes no gradients, but the model is in training mode: {_effect(sensitive, training=True)}."
        )
        fix = "model.eval()" if evidence.side == "torch" else "output = model(x, training=False)"
        yield make_finding("warning", "mode.train", MODEL, _called(evidence), message, fix)


def dropout(evidence: Evidence) -> Iterator[Finding]:
    """Report dropout functions that drop values in a module that is in eval mode."""
    for step in evidence.steps:
        for call in facts.lines(step.dropped):
            message = (
                f"{call.function} drops values at a rate of {call.rate:g} though the module that calls it is in eval "
                f"mode: the same input gives another output each time.{words.repeated(call.count)}"
            )
            fix = call.mended or "x = F.dropout(x, rate, training=self.training)"
            yield finding_at("warning", "mode.dropout", call.place, message, fix)


def _effect(modules: list[Module], training: bool = False) -> str:
    """Return how the mode changes what the given dropout and batch norm layers compute."""
    dropouts, norms = (sum(kind in m.kind for m in modules) for kind in ("Dropout", "BatchNorm"))
    effects = []
    if dropouts:
        verb = "drops" if dropouts == 1 else "drop"
        effects.append(f"{words.count(dropouts, 'dropout layer')} {verb} {'values' if training else 'nothing'}")
    if norms:
        in_training = "the batch's statistics are used, and the running ones updated"
        effect = in_training if training else "running statistics are used and not updated"
        effects.append(f"{words.count(norms, 'batch norm')}: {effect}")
    return "; ".join(effects) or "none of its layers behaves differently, but a dropout layer would"


def _called(evidence: Evidence) -> str:
    """Return the line that calls the model."""
    calls = [call for step in evidence.steps if (call := facts.root_call(step))]
    return calls[0].source if calls else facts.source_of(evidence, MODEL)
