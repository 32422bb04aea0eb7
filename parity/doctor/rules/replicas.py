"""Rules about parameters that should be the same on several ranks, and are not.

A parameter is taken for a replica if the ranks of a group first used it with the same values, or if they had the same
gradient of it. Sharded parameters start with values of their own and have gradients of their own. Ranks that pass
activations on by sends and receives, as the stages of a pipeline do, are not compared.
"""

from collections.abc import Iterator, Sequence

from parity.core.groups import by_key
from parity.doctor.evidence import PEERS, Change, Collective, Comparable, Evidence, Numbers, below
from parity.doctor.finding import Finding, Severity, make_finding
from parity.doctor.rules import facts, words
from parity.trace.keys import MODEL


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
    names: set[str] = set()
    own = comparable(evidence)
    for peer in ranks:
        if own and peer is not evidence and (theirs := comparable(peer)):
            held = {name for step in peer.steps for optimizer in step.optimizers for name in optimizer.parameters}
            used = (own[0].used, theirs[0].used)
            names |= {name for name in held.intersection(*used) if identical([numbers[name] for numbers in used])}
    return names


def in_ddp(evidence: Evidence) -> bool:
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
    informative = [name for name in changes if not used[name].constant]
    common = set(alike if in_ddp(evidence) else informative) - unlike
    around = {name: _around(name, informative) for name in alike}
    together = {name: zip(*changes[name], strict=False) for name in alike}  # the same change on all ranks
    ever_shared = {name for name in alike if any(is_shared([each.gradient for each in of]) for of in together[name])}
    return [name for name in alike if name in common | ever_shared or common >= around[name] > set()]


def _around(name: str, candidates: list[str]) -> set[str]:
    """Return those of some parameters that are in the innermost module around a parameter that has any of them."""
    module = name
    while module != MODEL:
        module = module.rpartition(".")[0] or MODEL
        if inside := {candidate for candidate in candidates if below(module, candidate)}:
            return inside
    return set()


def is_shared(gradients: list[Numbers]) -> bool:
    """Return whether gradients are the same, and say something."""
    return all(each.norm and not each.constant for each in gradients) and identical(gradients)


def identical(numbers: list[Numbers]) -> bool:
    return len({(each.size, each.norm, each.mark) for each in numbers}) == 1


ROUNDING = 1e-3  # share of a change up to which two ranks may differ because they added up in another order
# By how parameters were parted: why, and the fix.
WHY = {
    "gradients": (
        "the gradients that this line applies differ between the ranks.",
        "for p in {}: dist.all_reduce(p.grad)  # before this line",
    ),
    "gradient": (
        "this line changes their gradients, which were the same on all ranks, in another way on each.",
        "dist.all_reduce(total)  # before this line, which then does the same on all ranks",
    ),
    "update": (
        "this line makes another update on each rank, though the gradients are the same.",
        "for p in {}: dist.broadcast(p.data, src=owner)  # after this line",
    ),
    "": ("no optimizer has changed them so.", "for p in {}: dist.broadcast(p.data, src=0)  # after the change"),
}
DDP = (
    "DistributedDataParallel has not averaged the gradients that this line applies. It does so only if it is called "
    "itself, and if its parameters are neither moved nor cast nor replaced after it was made.",
    "model = DistributedDataParallel(model)  # after moving and casting it; call this one in every step",
)


def apart(ranks: Sequence[Evidence], logs: Sequence[Sequence[Collective]]) -> Iterator[Finding]:
    """Report parameters that ranks of a group share and that differ between them; `logs`: each rank's collectives."""
    by_number = {evidence.rank: evidence for evidence in ranks}
    for group in groups(ranks, logs):
        members = [by_number[rank] for rank in group if rank in by_number]
        if len(members) == len(group) > 1 and all(map(is_comparable, members)):
            yield from _of_group(members)


def _of_group(members: list[Evidence]) -> Iterator[Finding]:
    steps = [comparable(evidence) for evidence in members]
    first, last = ([each[at].used for each in steps] for at in (0, -1))
    names = [name for name in first[0] if all(name in used for used in (*first, *last))]
    unlike = {name for name in names if not identical([used[name] for used in first])}
    of_ranks = [each[0].changes for each in steps]
    changes = {name: [[each for each in own if each.parameter == name] for own in of_ranks] for name in names}
    if started_apart := [name for name in names if name in unlike and _share_gradients(changes[name])]:
        parts = facts.grouped_by_module(started_apart, members[0])
        message = (
            f"{words.subject(started_apart, 'is', 'are')} updated with the same gradients on {_on(members)}, but "
            "started with other values on each: no rank's model is the one that the gradients belong to."
        )
        fix = f"for p in {_all_of(parts)}: dist.broadcast(p.data, src=0)  # before the first step"
        module = parts[0].module
        yield make_finding("error", "replicas.start", module, facts.source_of(members[0], module), message, fix)
        return
    replicas = shared(members[0], unlike, first[0], changes)
    apart = [name for name in replicas if _differ(first[0][name], [used[name] for used in last])]
    parted = by_key((_cause(first[0][name], changes[name]), name) for name in apart)
    for (how, source), names in parted.items():
        yield _parted(members, names, how, source)


def _share_gradients(by_rank: list[list[Change]]) -> bool:
    """Return whether all ranks update a parameter with the same gradient, which only communication brings about."""
    updates = [[change.gradient for change in changes if change.what == "update"] for changes in by_rank]
    return all(updates) and is_shared([gradients[0] for gradients in updates])


def _differ(before: Numbers, after: list[Numbers]) -> bool:
    """Return whether ranks changed a parameter, which was the same on all, by more than rounding differently."""
    changes = [each.mark - before.mark for each in after]
    return not identical(after) and max(changes) - min(changes) > ROUNDING * max(map(abs, changes))


def _agree(gradients: list[Numbers]) -> bool:
    """Return whether gradients are the same up to rounding."""
    allowed = ROUNDING * max(each.norm for each in gradients)
    marks, norms = [each.mark for each in gradients], [each.norm for each in gradients]
    return max(marks) - min(marks) <= allowed and max(norms) - min(norms) <= allowed


def _cause(before: Numbers, by_rank: list[list[Change]]) -> tuple[str, str]:
    """Return how a parameter was parted, and at which line.

    "update" (with the same gradients), "gradient" (a write into the same gradients), "gradients" (they were never the
    same), or "" (none of these).
    """
    for together in zip(*by_rank, strict=False):
        if not _agree([change.gradient for change in together]):
            update = next((change for change in together if change.what == "update"), by_rank[0][-1])
            return "gradients", update.source
        written = [change for change in together if change.what == "gradient"]
        results = [change.result for change in together]
        if written and (len(written) < len(together) or not _agree(results)):
            return "gradient", written[0].source
        if not written and _differ(before, results):
            return "update", together[0].source
    return "", ""


def _parted(members: list[Evidence], names: list[str], how: str, source: str) -> Finding:
    evidence = members[0]
    parts, wrapped = facts.grouped_by_module(names, evidence), in_ddp(evidence)
    why, fix = DDP if wrapped and how == "gradients" else WHY[how]
    parameters = words.subject(names, "was", "were")
    message = f"{parameters} the same on {_on(members)} in the first step, and not in the second: {why}"
    severity: Severity = "error" if wrapped or how in ("gradient", "update") else "warning"
    source = source or facts.source_of(evidence, parts[0].module)
    return make_finding(severity, "replicas.parted", parts[0].module, source, message, fix.format(_all_of(parts)))


def _on(members: list[Evidence]) -> str:
    numbers = ", ".join(str(evidence.rank) for evidence in members)
    return "all ranks" if len(members) == members[0].ranks else f"ranks {numbers}"


def _all_of(parts: list[facts.ModuleParameters]) -> str:
    if len(parts) == 1 and parts[0].whole:
        return f"{words.code(parts[0].module)}.parameters()"
    whole = [f"*{words.code(part.module)}.parameters()" for part in parts if part.whole]
    return f"[{', '.join([*whole, *(words.code(name) for part in parts if not part.whole for name in part.names)])}]"
