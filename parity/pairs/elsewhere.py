"""Find outputs of modules that were compared with the wrong tensor: what torch passes on of them agrees with Keras.

One side's embedding scales what it returns, the other's leaves that to the model. Behind a fault no values tell that
the two outputs do not correspond, though the next module is given the same on both sides.
"""

from parity.diagnose.diagnosis import Examined
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
