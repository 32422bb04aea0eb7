"""Find slots of the user's own optimizers that hold other numbers on the two sides, and yet give the same updates.

What an optimizer of one's own keeps between two steps has no form that the sides would share: a flat array, a sum
where the other keeps a mean. If a slot differs after a step, and the updates that are made of it are the same
nevertheless, it is in another form. A slot that only begins to differ after the last step has no update that tells.
"""

from parity.diagnose.diagnosis import Examined
from parity.pairs.one_sided import slot
from parity.trace import keys
from parity.verdict.traces import Unequal


def in_another_form(examination: Examined, steps: int) -> set[str]:
    """Return the names of such slots. A slot whose numbers a known optimizer's formula reproduces is none of them.

    `steps` is the number of training steps.
    """
    moved = {
        (tensor.name, tensor.replica) for tensor in examination.unequal if tensor.kind in ("gradient", keys.UPDATE)
    }
    return {
        slot(keys.key(tensor.kind, tensor.name))
        for tensor in examination.unequal
        if tensor.kind == "optimizer_state"
        and "." in tensor.name
        and tensor.step is not None
        and tensor.step < steps - 1
        and (_parameter(tensor), tensor.replica) not in moved
        and not _is_known(examination, tensor)
    }


def _is_known(examination: Examined, tensor: Unequal) -> bool:
    replayed = examination.replayed
    return replayed is not None and replayed.reproduces(_parameter(tensor), tensor.replica, frozen=False)


def _parameter(tensor: Unequal) -> str:
    return tensor.name.rpartition(".")[0]
