"""The rule about passes for one optimizer that reach the parameters of another one, as of a GAN."""

from collections.abc import Iterator

from parity.doctor.evidence import Evidence, Step
from parity.doctor.evidence.ops import Call
from parity.doctor.evidence.training import Backward
from parity.doctor.finding import Finding
from parity.doctor.rules import words
from parity.doctor.rules.facts import make_finding


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
