"""Rules about how a step is run: by tf.functions that are traced again or not at all, in training or in eval mode."""

import re
from collections.abc import Iterator

from parity.doctor.evidence import Evidence, Module
from parity.doctor.finding import Finding, finding_at, make_finding
from parity.doctor.rules import facts, words
from parity.trace.keys import MODEL

CARES = re.compile("Dropout|BatchNorm")  # kinds of modules that compute something else in eval mode
EAGER = {
    "py_function": "y = tf.math.square(x)  # TensorFlow's ops in place of tf.py_function",
    "numpy_function": "y = tf.math.square(x)  # TensorFlow's ops in place of tf.numpy_function",
    "run_eagerly": "model.compile(optimizer, loss, run_eagerly=False)",
}


def retraced(evidence: Evidence) -> Iterator[Finding]:
    """Report functions that are traced again: every call with a new signature does that."""
    for retrace in evidence.retraces:
        change = f"; what differed: {retrace.change}" if retrace.change else ""
        message = f"{retrace.function} was traced {words.times(retrace.count)}{change}."
        yield make_finding("warning", "function.retraced", "", retrace.source, message, _steady(retrace.change))


def _steady(change: str) -> str:
    """Return the code that gives every call the same signature."""
    argument, _, differs = change.partition(": ")
    name = argument.partition("[")[0]
    if change.startswith("a new"):
        return "train = tf.function(train)  # once, outside of the step"
    if re.search(r"\w\[", differs):
        return "@tf.function(reduce_retracing=True)  # or input_signature=[tf.TensorSpec([None, 16])]"
    if not differs or differs.startswith("another object"):
        return f"self.{name if differs else 'value'} = {name if differs else 'value'}  # one object for all steps"
    return f"{name} = tf.constant({name})  # a tensor has one signature, each Python value its own"


def eager(evidence: Evidence) -> Iterator[Finding]:
    """Report parts of a graph that call Python, and functions that run in Python as a whole."""
    for part in facts.lines(evidence.eager):
        why = f"where TensorFlow cannot place or fuse its ops.{words.repeated(part.count)}"
        message = f"{part.what}: this runs in Python on the host in each step, {why}"
        fix = EAGER.get(part.what, "tf.config.run_functions_eagerly(False)")
        yield finding_at("warning", "function.eager", part.place, message, fix)


def compiled(evidence: Evidence) -> Iterator[Finding]:
    """Report a model that is compiled in the step."""
    for call in facts.lines(method for method in facts.last(evidence).methods if method.what == "compile"):
        lost = "its optimizer begins anew, without its state, and " if call.resets else ""
        advice = f"Compile it once, before the first step.{words.repeated(call.count)}"
        message = f"The model is compiled again in each step: {lost}its training function is traced again. {advice}"
        fix = call.mended or "if not model.compiled: model.compile(optimizer, loss)"
        yield finding_at("error" if call.resets else "warning", "function.compiled", call.place, message, fix)


def predicted(evidence: Evidence) -> Iterator[Finding]:
    """Report `predict` of a single batch in the step."""
    for call in facts.lines(method for method in facts.last(evidence).methods if method.what == "predict"):
        message = (
            "predict runs in each step, for a single batch: it is made for whole data sets, and each call builds a "
            "data pipeline and callbacks, which takes longer than the batch itself. predict_on_batch(x) returns the "
            f"same without them, model(x, training=False) as a tensor.{words.repeated(call.count)}"
        )
        fix = call.mended or "y = model(x, training=False)"
        yield finding_at("warning", "function.predict", call.place, message, fix)


def frozen(evidence: Evidence) -> Iterator[Finding]:
    """Report random numbers and times that Python computes in a tf.function, in each of its calls."""
    for value in facts.lines(facts.last(evidence).frozen):
        kept = (
            f"The graph keeps {'that time' if value.clock else 'what was drawn then'}, which is the same in all steps."
        )
        message = f"{value.what} runs in Python, in a tf.function: only while TensorFlow traces it. {kept}"
        fix = value.mended or ("now = tf.timestamp()" if value.clock else "noise = tf.random.normal(tf.shape(x))")
        yield finding_at("warning" if value.clock else "error", "function.frozen", value.place, message, fix)


def in_eval(evidence: Evidence) -> Iterator[Finding]:
    """Report a backward pass through a model, or parts of it, in eval mode."""
    if not facts.backward_ran(evidence):
        return
    sensitive = [m for m in evidence.modules if CARES.search(m.kind)]
    in_eval_mode = [m for m in sensitive if not m.training and not m.facts.get("frozen")]
    whole = not facts.module(evidence, MODEL).training
    if whole and (sensitive or evidence.side == "torch"):
        message = f"The whole model is in eval mode while a backward pass runs: {_effect(sensitive)}."
        fix = "model.train()" if evidence.side == "torch" else "output = model(x, training=True)"
        yield make_finding("warning" if sensitive else "note", "mode.eval", MODEL, _called(evidence), message, fix)
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
        effect = _effect(sensitive, training=True)
        message = f"The step computes no gradients, but the model is in training mode: {effect}."
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
    calls = [call for step in evidence.steps if (call := facts.root_call(step))]
    return calls[0].source if calls else facts.source_of(evidence, MODEL)
