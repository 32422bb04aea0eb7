"""The tensors of a pair's traces that can be compared: the two models may be split into modules differently."""

from collections.abc import Callable

from parity.core.names import MODEL
from parity.trace import keys
from parity.trace.mapping import Mapping, Matching


def comparable(mapping: Mapping | None, matching: Matching | None) -> Callable[[str], bool]:
    """Return a predicate that tells whether a key of torch's trace has a counterpart in Keras's trace.

    Without a mapping and a matching (a built-in case) every key has one.
    """
    if mapping is None or matching is None:
        return lambda key: True
    returned = {match.torch for match in matching.matches}
    fed = {match.torch.partition("#")[0] for match in matching.matches if match.inputs is not None}
    fed |= {each.torch for each in matching.fed}
    unmatched = mapping.left_out.union(mapping.constants)

    def is_comparable(key: str) -> bool:
        kind, name = keys.split(key)
        plain = name.partition("#")[0]
        if kind == "activation":
            return name in returned or name.startswith(MODEL)
        if kind == "input":
            return plain in fed or plain in keys.MODEL_INPUTS
        owner = name.rpartition(".")[0] if kind == "optimizer_state" else name
        return owner not in unmatched

    return is_comparable
