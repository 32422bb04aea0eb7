"""The single-device training that a distributed one should reproduce, and why some cannot."""

import msgspec

from parity.config.schema import UNUSED, Case


def why_not(case: Case) -> str:
    """Return why a case is not the same mathematics as training on a single device, or "" if it is."""
    if not case.distribution.is_distributed:
        return "it runs on a single device itself"
    if case.distribution.samples_by_rank:
        return "DistributedSampler takes the samples in another order"
    if case.model.has_batch_norm and case.replicas * case.accumulate > 1:
        return "batch norm normalizes each replica's part of the batch by its own statistics"
    if case.dropout and case.replicas * case.accumulate > 1:
        return "each replica and each micro-batch draws its own dropout masks"
    return ""


def baseline(case: Case) -> Case:
    """Return the same training on one device, without accumulation: each batch is computed at once."""
    name = f"{case.name.partition('/')[0]}/single"
    return msgspec.structs.replace(case, name=name, strategy="single", **UNUSED)
