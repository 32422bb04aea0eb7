"""What ranks should have in common, on evidence of two ranks: what parted it, and what is no replica at all."""

from typing import Any

import msgspec
from doctor_evidence import evidence, step

from parity.doctor import rules
from parity.doctor.evidence import Change, Collective, Comparable, Evidence, Numbers
from parity.doctor.evidence.training import Optimizer
from parity.doctor.finding import Finding

REDUCED = Collective(operation="all_reduce", shape=[64], dtype="float32", source="train.py:8")
SENT = Collective(operation="send", shape=[64], dtype="float32", source="train.py:8", peer=1)
WEIGHT, BIAS = "encoder.weight", "encoder.bias"


def numbers(mark: float, norm: float = 4.0, constant: bool = False) -> Numbers:
    return Numbers(size=64, norm=norm, mark=mark, constant=constant)


def written(name: str, before: float, after: float) -> Change:
    return Change(parameter=name, what="gradient", source="train.py:8", gradient=numbers(before), result=numbers(after))


def updated(name: str, gradient: float, result: float) -> Change:
    line = "train.py:9"
    return Change(parameter=name, what="update", source=line, gradient=numbers(gradient), result=numbers(result))


def rank(number: int, first: Any, second: Any, changes: list[Change], **fields: Any) -> Evidence:
    """Evidence of a rank that used parameters with these marks in its two steps."""
    used = [{name: numbers(mark) for name, mark in marks.items()} for marks in (first, second)]
    steps = [step(comparable=Comparable(used=used[0], changes=changes)), step(comparable=Comparable(used=used[1]))]
    for each in steps:
        for field, value in fields.items():
            setattr(each, field, value)
    return evidence(steps=steps, rank=number, ranks=2)


def pair(second: float = 0.6, gradient: float = 1.0, start: float = 0.5, **fields: Any) -> list[Evidence]:
    """Two ranks that update one weight: the first with a gradient of 1, from 0.5 to 0.4."""
    return [
        rank(0, {WEIGHT: 0.5}, {WEIGHT: 0.4}, [updated(WEIGHT, 1.0, 0.4)], **fields),
        rank(1, {WEIGHT: start}, {WEIGHT: second}, [updated(WEIGHT, gradient, second)], **fields),
    ]


def told(ranks: list[Evidence], *calls: Collective) -> list[Finding]:
    """What is said if each rank makes those of the calls whose group it belongs to."""
    made = calls or (REDUCED,)
    logs = [[call for call in made if not call.group or each.rank in call.group] for each in ranks]
    return [found for found in rules.findings(ranks, logs) if found.id.startswith("replicas")]


def one(ranks: list[Evidence], *calls: Collective) -> tuple[str, str, str, str]:
    (found,) = told(ranks, *calls)
    assert found.fix and found.message.endswith(".")
    return found.id, found.severity, found.where, found.source


def test_gradients_that_differ_are_named_at_the_update():
    assert one(pair(gradient=-1.0)) == ("replicas.parted", "warning", "encoder", "train.py:9")
    assert "gradients that this line applies differ" in told(pair(gradient=-1.0))[0].message


def test_the_fix_names_the_parameters_that_parted():
    assert (
        told(norms(weight=1.0))[0].fix == "for p in [model.encoder.bias]: dist.all_reduce(p.grad)  # before this line"
    )
    whole = pair(gradient=-1.0)
    for each in whole:
        each.weights = [weight for weight in each.weights if weight.name == WEIGHT]
    assert told(whole)[0].fix.startswith("for p in model.parameters(): dist.all_reduce(p.grad)")


def test_under_ddp_no_call_of_the_program_is_needed():
    ranks = pair(gradient=-1.0, distributed="ddp")
    (found,) = rules.findings(ranks, [[], []])
    assert (found.severity, found.source) == ("error", "train.py:9")
    assert "DistributedDataParallel has not averaged" in found.message


def test_a_write_into_the_same_gradients_is_named():
    ranks = pair(gradient=0.2)
    ranks[0].steps[0].comparable.changes.insert(0, written(WEIGHT, 1.0, 1.0))
    ranks[1].steps[0].comparable.changes.insert(0, written(WEIGHT, 1.0, 0.2))
    assert one(ranks)[1:] == ("error", "encoder", "train.py:8")


def test_a_write_of_one_rank_alone_is_named():
    ranks = pair(gradient=0.0)
    ranks[1].steps[0].comparable.changes.insert(0, written(WEIGHT, 1.0, 0.0))
    assert one(ranks)[1:] == ("error", "encoder", "train.py:8")


def test_an_update_that_differs_is_named():
    assert one(pair()) == ("replicas.parted", "error", "encoder", "train.py:9")
    assert "though the gradients are the same" in told(pair())[0].message


def test_a_change_without_an_update_is_told():
    ranks = pair()
    for each in ranks:
        each.steps[0].comparable.changes.clear()
    assert "no optimizer has changed them" in told(ranks)[0].message


def test_the_same_gradients_for_other_values_are_told():
    assert one(pair(second=0.2, start=0.3))[:3] == ("replicas.start", "error", "encoder")


def test_shards_have_values_and_gradients_of_their_own():
    assert told(pair(second=0.2, start=0.3, gradient=2.0)) == []


def test_what_stays_the_same_is_no_finding():
    assert told(pair(second=0.4)) == []


def test_rounding_is_no_finding():
    assert told(pair(second=0.4 + 1e-8)) == []
    assert told(pair(second=0.4 + 1e-3)) != []


def test_numbers_that_explode_on_all_ranks_are_no_finding():
    for second in (float("nan"), float("inf")):
        ranks = pair(second=second)
        ranks[0].steps[1].comparable.used[WEIGHT].mark = second
        assert told(ranks) == []


def test_ranks_are_compared_within_the_groups_that_communicate():
    ranks = [each for _ in range(2) for each in pair(gradient=-1.0)]
    for number, each in enumerate(ranks):
        each.rank, each.ranks = number, 4
    across, within = (
        [msgspec.structs.replace(REDUCED, group=group) for group in groups]
        for groups in ([[0, 2], [1, 3]], [[0, 1], [2, 3]])
    )
    assert told(ranks, *across) == []
    assert "the same on ranks 0, 1 in the first step" in told(ranks, *within)[0].message
    assert len(told(ranks, *within)) == 1


def test_stages_of_a_pipeline_are_not_compared():
    assert told(pair(), REDUCED, SENT) == []


def test_ranks_that_do_not_communicate_are_not_compared():
    assert rules.findings(pair(), [[], []]) == []


def test_a_step_that_failed_is_not_compared():
    ranks = pair()
    ranks[1].steps.pop()
    assert told(ranks) == []


def norms(weight: float, gradient: float = 2.0) -> list[Evidence]:
    """Two ranks with a bias of zeros, which parts, and a weight of this value beside it; the first rank's is 1.

    The decoder's weight is the same on both. The bias's gradient is 1 on the first rank.
    """
    ranks = []
    for number, (value, given) in enumerate([(1.0, 1.0), (weight, gradient)]):
        first = {BIAS: 0.0, WEIGHT: value, "decoder.weight": 7.0}
        changes = [updated(BIAS, given, number + 0.1)]
        ranks.append(rank(number, first, {**first, BIAS: number + 0.1}, changes))
        ranks[-1].steps[0].comparable.used[BIAS] = numbers(0.0, 0.0, constant=True)
    return ranks


def test_zeros_are_no_replicas_beside_a_shard():
    assert told(norms(weight=2.0)) == []


def test_zeros_are_replicas_beside_a_replica():
    assert one(norms(weight=1.0))[2:] == ("encoder", "train.py:9")
    assert told(norms(weight=1.0))[0].message.startswith("encoder.bias was")


def test_zeros_with_the_same_gradient_are_replicas():
    assert one(norms(weight=2.0, gradient=1.0))[2:] == ("encoder", "train.py:9")


def test_constants_alone_say_nothing():
    ranks = pair(gradient=-1.0)
    for each in ranks:
        each.steps[0].comparable.used[WEIGHT].constant = True
    assert told(ranks) == []


def sharded_optimizer(value: float) -> list[Evidence]:
    """Two ranks with a gradient of the encoder, of which the first alone updates it."""
    ranks = pair(second=0.4, start=value)
    for number, each in enumerate(ranks):
        held = [WEIGHT, BIAS] if number == 0 else ["decoder.weight", "decoder.bias"]
        for seen in each.steps:
            seen.optimizers = [Optimizer(kind="Adam", source="train.py:2", parameters=held, stepped=True)]
            for used in [seen.comparable.used] if seen.comparable else []:
                shared = ("decoder.weight", "decoder.bias", BIAS)
                used.update({name: numbers(0.5) for name in shared})
    return ranks


def test_another_rank_may_make_the_update():
    found = rules.findings(sharded_optimizer(0.5), [[REDUCED]] * 2)
    assert "learning.no_optimizer" not in [each.id for each in found]
    alone = rules.findings(sharded_optimizer(0.5)[:1], [[REDUCED]])
    assert "learning.no_optimizer" in [each.id for each in alone]


def test_another_rank_s_own_part_of_that_name_is_no_such_update():
    found = rules.findings(sharded_optimizer(0.3), [[REDUCED]] * 2)
    assert "learning.no_optimizer" in [each.id for each in found]
