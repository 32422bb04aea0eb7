"""Find outputs of modules that were compared with the wrong tensor, as what follows of them agrees.

One side's embedding scales what it returns, the other's leaves that to the model. Behind a fault no values tell that
the two outputs do not correspond, though the next module is given the same on both sides. And two tensors may be equal
by chance: the last state of a recurrent layer is that of the last step, as long as no sequence ends in padding.
"""

from parity.diagnose.diagnosis import Examined
from parity.pairs.activations.counterparts import is_output
from parity.trace import keys
from parity.trace.comparable import comparable
from parity.trace.manifest import Trace


def counterparts(examined: Examined, reference: Trace, candidate: Trace) -> set[str]:
    """Return the keys of unequal activations that torch passes on, as they are, as an input that is equal.

    So Keras has the same tensor at another place. Only the first step is looked at: later on the weights may differ.
    """
    file = f"{keys.RUNS[1]}/rank-0/{keys.step_file(0)}"
    mine, theirs = (trace.manifest.aliases.get(file, {}) for trace in (reference, candidate))
    is_comparable = comparable(candidate.manifest.mapping, candidate.manifest.matching)
    unequal = {keys.key(tensor.kind, tensor.name) for tensor in examined.unequal if tensor.step == 0}
    listed = set(candidate.manifest.files.get(file, ()))
    return {
        source
        for passed, source in mine.items()
        if keys.split(passed)[0] == "input"
        and keys.split(source)[0] == "activation"
        and source in unequal
        and passed not in unequal
        and passed in listed
        and theirs.get(passed) != source
        and is_comparable(passed)
    }


def equal_by_chance(examined: Examined) -> set[str]:
    """Return the keys of what differs, if that is only what inner modules return, and not in the first step.

    Nothing that follows of it differs then: neither the model's outputs, nor losses, gradients and updates.
    """
    unequal = examined.unequal
    is_inner = all(each.kind == "activation" and each.step and not is_output(each.name) for each in unequal)
    return {keys.key(each.kind, each.name) for each in unequal} if is_inner else set()
