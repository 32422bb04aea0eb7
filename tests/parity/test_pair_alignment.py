"""The alignment of two sequences, and what speaks for a unit's counterpart in that of weights."""

import pytest
from pair_surveys import PAIR, dense, keras, line, linear, torch

from parity.pairs.weights.propose import propose


@pytest.mark.parametrize("missing", ["weight", "bias"])
def test_a_norm_without_scale_or_offset_keeps_its_other_weights(missing: str) -> None:
    roles = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}
    has = {keras_role: (4,) for role, keras_role in roles.items() if role != missing}
    here = torch(linear("fc", 4, 4), line("norm", "batch_norm", **dict.fromkeys(roles, (4,))))
    proposal = propose(here, keras(dense("fc", 4, 4), line("bn", "batch_norm", **has)), PAIR)
    found = {entry.torch[0]: entry.keras[0] for entry in proposal.mapping.entries}
    assert {f"norm.{role}": f"bn/{roles[role]}" for role in roles if role != missing}.items() <= found.items()
    assert [weight.name for weight in proposal.mapping.unplaced] == [f"norm.{missing}"]


def test_buffers_of_whole_numbers_are_no_counterparts_of_others() -> None:
    here = torch(linear("a", 4, 4), line("", "Net", position_ids=(1, 4)), called=["", "a"])
    there = keras(dense("a", 4, 4), line("b", "Table", moving_mean=(1, 4)))
    assert propose(here, there, PAIR).mapping.constants[:1] == ["position_ids"]
