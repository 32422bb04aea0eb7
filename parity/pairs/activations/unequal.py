"""Counterparts among tensors that are not the same: behind a fault, nothing is.

Modules that own the same weights belong together, nearest values first. Where one side's layer has its activation
in it, the tensor behind the other side's activation is its counterpart. Then, between two pairs that correspond,
what is of one kind.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from parity.pairs.activations.counterparts import By, Counterparts, Place, may_be_behind
from parity.pairs.activations.values import CLOSE, SAME, Fit

CLEARLY = 0.5  # of two candidates, the nearer one is nearer than this part of the other's distance
RELATED = 0.75  # the distance up to which another kind in the same place is a fault rather than something else
SORTS = {"pool": ("pool",), "activation": ("activation", "elu", "silu", "swish", "sigmoid", "tanh", "softplus")}


class _Candidate(NamedTuple):
    torch: Place
    keras: Place
    fit: Fit
    by: By

    @property
    def rank(self) -> tuple[float, bool, bool, int]:
        """Near before far, and between equals those alike, in order."""
        alike = self.torch.kind == self.keras.kind, self.torch.leaf == self.keras.leaf
        return float(f"{self.fit.distance:.2e}"), not alike[0], not alike[1], self.torch.number + self.keras.number


def match_owners(state: Counterparts) -> None:
    """Match what modules return that own the same weights: first what is close, then what nothing else can be."""
    groups = _groups(state)
    close = [one for torch, keras in groups for one in _candidates(state, torch, keras) if one.fit.distance <= CLOSE]
    for one in sorted(close, key=lambda one: one.rank):
        _accept(state, one)
    for torch, keras in groups:
        for leaf in (True, False, None):
            ours = [place for place in torch if place.number not in state.found and leaf in (None, place.leaf)]
            theirs = [place for place in keras if place.number not in state.taken and leaf in (None, place.leaf)]
            _match_in_order(state, ours, theirs)


def match_in_gaps(state: Counterparts) -> None:
    """Match what has one kind and could be the same, where exactly one such tensor or a much nearer one is there."""
    for alike in (lambda place: place.kind, _sort, lambda place: "" if place.owns or not place.leaf else "any"):
        accepted = [True]
        while any(accepted):  # what is found makes the gaps narrower
            accepted = [_accept(state, one) for one in _clear(state, alike)]


def _sort(place: Place) -> str:
    """What sort of thing a kind without weights is: the wrong activation is one too."""
    kind = place.kind.lower()
    return "" if place.owns else next((sort for sort, parts in SORTS.items() if any(p in kind for p in parts)), "")


def _groups(state: Counterparts) -> list[tuple[list[Place], list[Place]]]:
    """The tensors of modules that own the same, if both sides have some.

    Of several modules that together own what one of the other side does, the last returns the same.
    """
    groups: dict[frozenset[int], tuple[list[Place], list[Place]]] = {}
    for side, places in enumerate((state.torch, state.keras)):
        for place in places:
            if place.owns:
                groups.setdefault(place.owns, ([], []))[side].append(place)
    for owns, group in groups.items():
        for places, own, other in ((state.keras, *group), (state.torch, *group[::-1])):
            if own and not other and len(owns) > 1 and all(place.leaf for place in own):
                other += _last_part(places, owns)
    return [group for group in groups.values() if all(group)]


def _last_part(places: Sequence[Place], owns: frozenset[int]) -> list[Place]:
    """The last tensor from modules that own a part, if nothing of the whole is missing."""
    parts = [place for place in places if place.owns and place.owns < owns]
    return parts[-1:] if frozenset().union(*(place.owns for place in parts)) == owns else []


def _candidates(state: Counterparts, ours: list[Place], theirs: list[Place]) -> Iterator[_Candidate]:
    """The pairs of a group, and what stands behind the one if the other may have its activation in it."""
    for torch in ours:
        for keras in theirs:
            if torch.number in state.found and keras.number in state.taken:
                continue
            if torch.fused == keras.fused:
                yield from _candidate(state, torch, keras, "weights")
            if torch.kind != keras.kind or torch.fused != keras.fused:
                yield from _behind(state, torch, keras)


def _behind(state: Counterparts, torch: Place, keras: Place) -> Iterator[_Candidate]:
    """The one and the layer without weights that is called after the other, which may be its activation."""
    if not (torch.leaf and keras.leaf):
        return
    if not torch.fused and (activation := _activation(state.torch, torch)):
        yield from _candidate(state, activation, keras, "order")
    if not keras.fused and (activation := _activation(state.keras, keras)):
        yield from _candidate(state, torch, activation, "order")


def _activation(places: Sequence[Place], place: Place) -> Place | None:
    after = places[place.number + 1] if place.number + 1 < len(places) else None
    if after and after.leaf and not after.owns and not after.is_random and after.tensor.size == place.tensor.size:
        return after
    return None


def _candidate(state: Counterparts, torch: Place, keras: Place, by: By) -> Iterator[_Candidate]:
    if state.is_free(torch, keras) and may_be_behind(torch, keras) and (fit := state.fit(torch, keras)):
        yield _Candidate(torch, keras, fit, by)


def _match_in_order(state: Counterparts, ours: list[Place], theirs: list[Place]) -> None:
    """As many on both sides, or one module each: that torch's also returns its states does not matter."""
    fitting = [(torch, keras) for torch in ours for keras in theirs if torch.tensor.size == keras.tensor.size]
    ours, theirs = ([one for one in side if any(one in pair for pair in fitting)] for side in (ours, theirs))
    modules = {torch.module for torch in ours}, {keras.module for keras in theirs}
    if len(ours) != len(theirs) and (len(modules[0]), len(modules[1])) != (1, 1):
        return
    for torch, keras in zip(ours, theirs, strict=False):
        alike = torch.fused == keras.fused
        for one in _candidate(state, torch, keras, "weights") if alike else _behind(state, torch, keras):
            _accept(state, one)


def _accept(state: Counterparts, one: _Candidate) -> bool:
    """Match two tensors, unless they have a counterpart, or nothing behind them shows their difference."""
    apart = one.fit.distance
    if not state.is_free(one.torch, one.keras) or (apart > SAME and state.died_out(one.torch, apart)):
        return False
    state.add(one.torch, one.keras, one.fit, one.by)
    return True


def _clear(state: Counterparts, alike: Callable[[Place], str]) -> list[_Candidate]:
    """Between each two anchors the pairs of those alike that are unambiguous."""
    torch_gaps, keras_gaps = state.gaps()
    rooms: dict[tuple[int, str, int, str], tuple[list[Place], list[Place]]] = {}
    for side, (places, gaps) in enumerate(((state.torch, torch_gaps), (state.keras, keras_gaps))):
        taken = state.taken if side else state.found
        for place in places:
            if place.number not in taken and alike(place):
                key = gaps[place.number], alike(place), place.tensor.size, place.tensor.family
                rooms.setdefault(key, ([], []))[side].append(place)
    return [one for ours, theirs in rooms.values() if ours and theirs for one in _unique(state, ours, theirs)]


def _unique(state: Counterparts, ours: list[Place], theirs: list[Place]) -> Iterator[_Candidate]:
    pairs = [(t, k) for t in ours for k in theirs if not (t.owns and k.owns) and t.is_random == k.is_random]
    fits = [one for torch, keras in pairs for one in _candidate(state, torch, keras, "order")]
    if len(ours) == len(theirs) and all(one.fit.distance <= SAME for one in fits):
        yield from (one for one in fits if ours.index(one.torch) == theirs.index(one.keras))
        return
    for one in fits:
        if one.torch.kind != one.keras.kind and one.fit.distance > RELATED:
            continue
        rivals = [other for other in fits if (other.torch is one.torch) != (other.keras is one.keras)]
        nearest = min((other.fit.distance for other in rivals), default=None)
        if nearest is None or one.fit.distance <= min(CLOSE, CLEARLY * nearest):
            yield one
