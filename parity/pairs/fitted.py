"""Judge a Keras model that `fit` trains otherwise than its recorded steps, which ran op by op."""

from parity.core.names import MODEL
from parity.results import CaseResult, Cause, Divergence
from parity.trace.manifest import Fitted, Trace
from parity.trace.mapping import Mapping

STATE = "fit.python_state"  # what Python keeps is frozen in the graph that fit makes
GRAPH = "fit.graph"  # fit computes otherwise for another reason
MOST = 3  # names in a sentence


def name_fitted(result: CaseResult, candidate: Trace, mapping: Mapping) -> None:
    """Make a result diverged whose Keras model `fit` trains to another one than its recorded steps do.

    It is inconclusive where `fit` fails, or is the user's own.
    """
    fitted = candidate.manifest.training.fitted
    if fitted is None:
        return
    if fitted.error:
        changes = f"keras's steps change {_state(fitted)} in Python, and " if fitted.state else ""
        result.not_compared.append(f"{changes}fit fails: {fitted.error}")
        if result.verdict in ("match", "subprecision"):
            result.verdict = "inconclusive"
            result.reason = (
                "fit fails on keras's model, whose steps op by op are what was compared; compile it with run_eagerly, "
                "or give the step that trains it as keras_step in [train]"
            )
    elif fitted.overridden:
        result.verdict, result.first_divergence, result.causes = "inconclusive", None, []
        result.reason = (
            f"keras's model overrides {fitted.overridden}, by which it is trained otherwise than by its steps, which "
            "are compared; give a step that does the same as keras_step in [train]"
        )
    else:
        result.causes.append(_cause(fitted))
        if result.verdict != "diverged":
            result.verdict, result.first_divergence = "diverged", _divergence(fitted, candidate, mapping)


def _state(fitted: Fitted) -> str:
    return f"{', '.join(fitted.state[:MOST])}{' and more' if len(fitted.state) > MOST else ''}"


def _cause(fitted: Fitted) -> dict[str, str]:
    ends = "its output" if fitted.weight == MODEL else fitted.weight
    if fitted.state:
        kept = f"in which {_state(fitted)}, kept in Python, stays as it was when it was traced"
        values = {"torch": "changes in every step", "keras": "stays in fit's graph"}
    else:
        kept = "in which the user's code does something else"
        values = {"torch": "a step", "keras": "fit"}
    evidence = (
        f"fit traces keras's training step into a graph, {kept}; {ends} ends {fitted.apart:.1e} of its largest value "
        "apart from a training op by op"
    )
    return Cause(id=STATE if fitted.state else GRAPH, where=MODEL, **values, evidence=evidence)


def _divergence(fitted: Fitted, candidate: Trace, mapping: Mapping) -> Divergence:
    """Return the place of what ends furthest apart, by torch's name."""
    owners = (entry.torch[0] for entry in mapping.entries if fitted.weight in entry.keras)
    return Divergence(
        step=candidate.case.steps - 1,
        kind="activation" if fitted.weight == MODEL else "parameter",
        name=next(owners, fitted.weight),
        replica=0,
        bits=None,
        reason="fit trains keras's model to another one than the same steps do op by op",
    )
