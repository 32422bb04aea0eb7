"""Device layouts: what each aspect says, and that every difference is named."""

from pathlib import Path
from typing import Any

import pytest
from layouts import SIDES, WHOLE, check, copied, moved
from msgspec.structs import replace
from synthetic import small_case

from parity.diagnose.entries import layout_causes
from parity.layout import differences
from parity.layout.declared import DECLARED
from parity.results import LayoutCheck
from parity.trace.layout import Held, Layout, merge, shards

# One layout


@pytest.mark.parametrize(
    ("replicas", "staged", "expected"),
    [
        (1, False, {"all_reduce": 40, "broadcast": 4}),
        (2, False, {"all_reduce": 40, "broadcast": 4}),
        (4, False, {"all_reduce": 40, "broadcast": 4}),
        (1, True, {"all_reduce": 82, "broadcast": 5}),  # four stages
        (2, True, {"all_reduce": 52, "broadcast": 4}),  # 10 + 20, and 40 + 12
        (4, True, {"all_reduce": 40, "broadcast": 4}),  # one stage each
    ],
)
def test_the_stages_of_a_replica_give_a_part_each_into_collectives(
    replicas: int, staged: bool, expected: dict[str, int]
) -> None:
    """What a replica gives, the one that gives most; ranks that are no stages give all of it."""
    given = [{"all_reduce": 10}, {"all_reduce": 20, "broadcast": 1}, {"all_reduce": 40}, {"all_reduce": 12}]
    given[3]["broadcast"] = 4
    common = {"devices": ["CPU"] * 4, "parameters": {}, "replicas": replicas}
    parts = [Layout(collectives=each, **common) for each in given]
    assert merge(parts, staged).collectives == expected
    assert staged or merge(parts).collectives == expected


def test_what_no_device_holds_whole_is_a_shard() -> None:
    tensors = {
        "whole": Held([(0, 8)], 8),
        "copied": Held([(0, 8), (1, 8)], 8),
        "packed": Held([(0, 4), (0, 4)], 8),
        "of one rank": Held([(1, 5)], 8),
        "cut": Held([(0, 3), (0, 2), (2, 3)], 8),
        "empty here": Held([(0, 0)], 8),
    }
    assert shards(tensors, 3) == {"of one rank": [0, 5, 0], "cut": [5, 0, 3]}
    assert [held.devices for held in tensors.values()] == [[0], [0, 1], [0], [1], [0, 2], []]


def test_another_cut_is_a_difference_and_a_trace_without_cuts_has_none() -> None:
    cut, other = (replace(WHOLE, shards={"linear1.weight": sizes}) for sizes in ([6, 2], [4, 4]))
    case = small_case(devices=2, strategy="round_robin")
    line = "shards: linear1.weight: torch 6 + 2 elements, keras 4 + 4 elements"
    assert differences(SIDES, case, cut, other) == [line]
    assert differences(SIDES, case, cut, cut) == differences(SIDES, case, cut, WHOLE) == []
    (cause,) = layout_causes(LayoutCheck(differences=[line]), SIDES, is_explained=False)
    assert (cause.id, cause.where, cause.keras) == ("placement.parameters", "linear1.weight", "4 + 4 elements")


# Two layouts

DIFFERENCES: list[tuple[dict[str, Any], str]] = [
    ({"parameters": {"linear2.weight": [0]}}, "parameters: linear2.weight: torch on 1, keras on 0"),
    ({"parameters": {"linear2.weight": [0, 1]}}, "parameters: linear2.weight: torch on 1, keras on 0, 1"),
    ({"parameters": {"linear2.weight": None}}, "parameters: linear2.weight: torch on 1, keras nowhere"),
    ({"parameters": {"linear2.bias": [0]}}, "parameters: linear2.bias: torch nowhere, keras on 0"),
    (
        {"optimizer_state": {"linear1.weight.momentum": [1]}},
        "optimizer_state: linear1.weight.momentum: torch on 0, keras on 1",
    ),
    (
        {"optimizer_state": {"linear1.weight.momentum": None}},
        "optimizer_state: linear1.weight.momentum: torch on 0, keras nowhere",
    ),
    ({"compute": {"linear2": [0]}}, "compute: linear2: torch on 1, keras on 0"),
    ({"compute": {"linear2": None}}, "compute: linear2: torch on 1, keras nowhere"),
    ({"backward": {"linear1": [1]}}, "backward: linear1: torch on 0, keras on 1"),
    ({"backward": {"linear1": None}}, "backward: linear1: torch on 0, keras nowhere"),
    (
        {"transfers": [copied("activation", 0, 1, 64)]},
        "transfers: gradient 1 -> 0: torch 64 bytes, keras 0",
    ),
    (
        {"transfers": [copied("activation", 0, 1, 32), copied("gradient", 1, 0, 64)]},
        "transfers: activation 0 -> 1: torch 64 bytes, keras 32",
    ),
    (
        {"transfers": [*WHOLE.transfers, copied("activation", 1, 0, 4)]},
        "transfers: activation 1 -> 0: torch 0 bytes, keras 4",
    ),
    ({"collectives": {"all_reduce": 200}}, "collectives: all_reduce: torch 100 bytes, keras 200"),
    ({"collectives": {"all_reduce": None}}, "collectives: all_reduce: torch 100 bytes, keras 0"),
    ({"collectives": {"broadcast": 8}}, "collectives: broadcast: torch 0 bytes, keras 8"),
    ({"replicas": 2}, "replicas: torch 1, keras 2"),
]


@pytest.mark.parametrize(("change", "said"), DIFFERENCES)
def test_every_difference_is_named(change: dict[str, Any], said: str) -> None:
    case = small_case(strategy="round_robin")
    assert differences(SIDES, case, WHOLE, moved(**change)) == [said]
    assert differences(SIDES, case, WHOLE, WHOLE) == []
    assert len(differences(SIDES, case, moved(**change), WHOLE)) == 1


def test_what_no_side_saw_fails_the_case(tmp_path: Path) -> None:
    unseen = moved(backward={"linear1": None})
    found = check(tmp_path, unseen, unseen, strategy="round_robin")
    assert (found.verdict, found.differences) == ("diverged", ["backward: linear1: not observed on either side"])
    assert check(tmp_path, unseen, unseen).verdict == "match"  # on a single device


# Whole traces


def test_every_declaration_has_a_reason_and_a_source() -> None:
    assert DECLARED
    assert all(rule.strategies and rule.reason and rule.source for rule in DECLARED)


# Half precision


@pytest.mark.parametrize(
    ("precision", "size", "verdict"),
    [
        ("bfloat16", 8, "match"),
        ("bfloat16", 12, "match"),
        ("bfloat16", 7, "diverged"),
        ("bfloat16", 17, "diverged"),
        ("float32", 8, "diverged"),
    ],
)
def test_up_to_half_fewer_bytes_are_declared_at_half_precision_alone(
    precision: str, size: int, verdict: str, tmp_path: Path
) -> None:
    """A Keras layer casts before the copy, torch.autocast behind it: what is copied may be twice as wide."""
    block = {"model": {"kind": "residual_block"}, "data": {"source": "synthetic"}, "loss": {"target": "zeros"}}
    case = {**block, "strategy": "branch_parallel", "precision": precision}
    one, other = (replace(WHOLE, replicas=1, transfers=[copied("activation", 0, 1, bytes_)]) for bytes_ in (16, size))
    assert check(tmp_path, one, other, **case).verdict == verdict
