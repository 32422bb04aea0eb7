"""What ranks should have in common, on evidence of two ranks: what parted it, and what is no replica at all."""

from typing import Any

from doctor_evidence import evidence, step

from parity.doctor import rules
from parity.doctor.evidence import Change, Collective, Comparable, Evidence, Numbers
from parity.doctor.finding import Finding

REDUCED = Collective(operation="all_reduce", shape=[64], dtype="float32", source="train.py:8")
SENT = Collective(operation="send", shape=[64], dtype="float32", source="train.py:8", peer=1)
WEIGHT, BIAS = "encoder.weight", "encoder.bias"


def numbers(mark: float, norm: float = 4.0, constant: bool = False) -> Numbers:
    return Numbers(size=64, norm=norm, mark=mark, constant=constant)


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


def test_the_same_gradients_for_other_values_are_told():
    assert one(pair(second=0.2, start=0.3))[:3] == ("replicas.start", "error", "encoder")


def test_stages_of_a_pipeline_are_not_compared():
    assert told(pair(), REDUCED, SENT) == []


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


def test_zeros_with_the_same_gradient_are_replicas():
    assert one(norms(weight=2.0, gradient=1.0))[2:] == ("encoder", "train.py:9")
