"""Which parameters several ranks have in common.

A parameter is taken for a replica if the ranks of a group first used it with the same values, or if they had the same
gradient of it. Sharded parameters start with values of their own and have gradients of their own. Ranks that pass
activations on by sends and receives, as the stages of a pipeline do, are not compared.
"""

from collections.abc import Sequence

from parity.core.names import MODEL
from parity.doctor.evidence import Evidence
from parity.doctor.evidence.ranks import Collective
from parity.doctor.evidence.replicas import Change, Comparable, Numbers
from parity.doctor.rules.facts import below

PEERS = ("send", "recv")


def groups(ranks: Sequence[Evidence], logs: Sequence[Sequence[Collective]]) -> list[tuple[int, ...]]:
    """Return the groups of ranks that communicate by collectives and pass nothing from one to the next."""
    everyone = tuple(evidence.rank for evidence in ranks)
    if any(map(in_ddp, ranks)):
        return [everyone]
    calls = [call for log in logs for call in log]
    if any(call.operation in PEERS for call in calls):
        return []
    return sorted({tuple(sorted(call.group)) or everyone for call in calls})


def held_elsewhere(evidence: Evidence, ranks: Sequence[Evidence]) -> set[str]:
    """Return the parameters that an optimizer of another rank updates, which began with the same values there."""
    own, names = comparable(evidence), set()
    for other in ranks if own else ():
        steps = comparable(other)
        held = {name for step in other.steps for optimizer in step.optimizers for name in optimizer.parameters}
        shared = held & set(own[0].used) & set(steps[0].used if steps else ())
        names |= {
            name for name in shared if other is not evidence and identical([own[0].used[name], steps[0].used[name]])
        }
    return names


def in_ddp(evidence: Evidence) -> bool:
    """Return whether a rank has its model in DistributedDataParallel."""
    return any(step.distributed.startswith("ddp") for step in evidence.steps)


def comparable(evidence: Evidence) -> list[Comparable]:
    """Return what the rank's steps have to compare, of those with a backward pass."""
    return [step.comparable for step in evidence.steps if step.comparable and step.comparable.used]


def is_comparable(evidence: Evidence) -> bool:
    """Return whether two steps of the rank came to their end, so that the second used what the first had updated."""
    return len(comparable(evidence)) > 1 and not any(step.failure for step in evidence.steps)


def shared(
    evidence: Evidence, unlike: set[str], used: dict[str, Numbers], changes: dict[str, list[list[Change]]]
) -> list[str]:
    """Return the parameters that the ranks have in common.

    Ones or zeros alone, with which a norm or a bias begins, say nothing: what counts for them is whether the ranks
    once had the same gradient, or else have the parameters around them in common.
    """
    alike = [name for name in changes if name not in unlike]
    if in_ddp(evidence):
        return alike
    informative = [name for name in changes if not used[name].constant]
    common = set(informative) - unlike
    return [
        name
        for name in alike
        if name in common or _ever_shared(changes[name]) or common >= _around(name, informative) > set()
    ]


def _around(name: str, others: list[str]) -> set[str]:
    """Return those of other parameters that are in the innermost module around a parameter that has any of them."""
    module = name
    while module != MODEL:
        module = module.rpartition(".")[0] or MODEL
        if found := {other for other in others if below(module, other)}:
            return found
    return set()


def _ever_shared(by_rank: list[list[Change]]) -> bool:
    """Return whether all ranks had the same gradient of a parameter at some time."""
    together = zip(*([change.gradient for change in changes] for changes in by_rank), strict=False)
    return any(is_shared(list(gradients)) for gradients in together)


def is_shared(gradients: list[Numbers]) -> bool:
    """Return whether gradients are the same, and say something."""
    return all(each.norm and not each.constant for each in gradients) and identical(gradients)


def identical(numbers: list[Numbers]) -> bool:
    """Return whether all of these numbers are the same."""
    return len({(each.size, each.norm, each.mark) for each in numbers}) == 1
