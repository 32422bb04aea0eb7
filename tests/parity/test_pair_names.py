"""What names decide about units of one shape."""

import pytest
from pair_surveys import PAIR, dense, keras, linear, torch

from parity.pairs.weights.propose import Proposal, propose


def proposal(ours: list[str], theirs: list[str]) -> Proposal:
    return propose(torch(*(linear(name, 4, 4) for name in ours)), keras(*(dense(name, 4, 4) for name in theirs)), PAIR)


def found(proposed: Proposal) -> dict[str, str]:
    return {
        entry.torch[0].removesuffix(".weight"): entry.keras[0].removesuffix("/kernel")
        for entry in proposed.mapping.entries
        if entry.torch[0].endswith("weight")
    }


@pytest.mark.parametrize(
    ("ours", "theirs", "truth"),
    [
        (["a", "b", "c"], ["b", "c", "a"], ["a", "b", "c"]),  # equal names, three in a ring
        (["q", "k", "v"], ["value", "query", "key"], ["query", "key", "value"]),  # parts, three in a ring
        (["gate_proj", "mid"], ["inner", "gate"], ["gate", "inner"]),  # one name tells, and so the other follows
        (["fc1", "fc2"], ["dense2", "dense1"], ["dense1", "dense2"]),  # numbers
        (["user.fc", "item.fc"], ["item_tower/x", "user_tower/y"], ["user_tower/y", "item_tower/x"]),  # words
    ],
)
def test_names_go_before_the_order_of_calls(ours: list[str], theirs: list[str], truth: list[str]) -> None:
    proposed = proposal(ours, theirs)
    assert found(proposed) == dict(zip(ours, truth, strict=True))
    assert proposed.ambiguities == []


def test_one_number_alone_tells_nothing() -> None:
    """One side may count from 0, and the other from 1."""
    assert len(proposal(["first", "fc1"], ["mlp1", "mlp0"]).ambiguities) == 1
