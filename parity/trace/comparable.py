"""Which tensors of a pair's traces have a counterpart: the two sides may be cut into modules differently."""

from collections.abc import Callable

from parity.core.names import MODEL
from parity.trace import keys
from parity.trace.mapping import Mapping, Matching


def comparable(mapping: Mapping | None, matching: Matching | None) -> Callable[[str], bool]:
    """Whether a key of torch's trace is to be in Keras's too: all but what has no counterpart among its layers."""
    if mapping is None or matching is None:
        return lambda key: True
    returned = {match.torch for match in matching.matches}
    given = {match.torch.partition("#")[0] for match in matching.matches if match.inputs is not None}
    alone = {*mapping.ignored, *mapping.constants}

    def is_comparable(key: str) -> bool:
        kind, name = keys.split(key)
        plain = name.partition("#")[0]
        if kind == "activation":
            return name in returned or name.startswith(MODEL)
        if kind == "input":
            return plain in given or plain in keys.MODEL_INPUTS
        owner = name.rpartition(".")[0] if kind == "optimizer_state" else name
        return owner not in alone

    return is_comparable
