"""Find slots of the user's own optimizers that hold other numbers on the two sides, and yet give the same updates.

What an optimizer of one's own keeps between two steps has no form that the sides would share: a flat array, a sum where
the other keeps a mean, a learning rate that is set before an update or behind the one before it. If a slot differs
after a step, and the updates that are made of it are the same nevertheless, it is in another form. A slot that only
begins to differ after the last step has no update that tells.
"""

from collections.abc import Set

from parity.diagnose.diagnosis import Examined
from parity.pairs.one_sided import slot
from parity.trace import keys
from parity.verdict.traces import Unequal


def in_another_form(examination: Examined, steps: int) -> set[str]:
    """Return the names of such slots.

    One that differs after the last step is such a slot if both optimizers' formulas say so. `steps` is the number of
    training steps.
    """
    moved = {
        (tensor.name, tensor.replica) for tensor in examination.unequal if tensor.kind in ("gradient", keys.UPDATE)
    }
    return {
        slot(keys.key(tensor.kind, tensor.name))
        for tensor in examination.unequal
        if tensor.kind == "optimizer_state"
        and tensor.step is not None
        and (tensor.step < steps - 1 or keys.key(keys.UPDATE, _parameter(tensor)) in examination.same)
        and not _moves(tensor, moved)
    }


def _moves(tensor: Unequal, moved: Set[tuple[str, int]]) -> bool:
    """Return whether an update differs that is made of a slot; all are made of one that belongs to no parameter."""
    return (_parameter(tensor), tensor.replica) in moved if "." in tensor.name else bool(moved)


def _parameter(tensor: Unequal) -> str:
    return tensor.name.rpartition(".")[0]
