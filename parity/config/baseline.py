"""The training on a single device that a distributed one should equal, where it should."""

import msgspec

from parity.config.schema import Case, ResidualBlock


def why_not(case: Case) -> str:
    """Why a case is not the same mathematics as training on a single device, or ""."""
    if case.strategy == "single":
        return "is on a single device"
    if case.strategy == "all_reduce":
        return "the samples come in the order of the sampler"
    if isinstance(case.model, ResidualBlock) and case.replicas * case.accumulate > 1:
        return "batch norm takes the statistics of each part of the batch"
    if case.dropout and case.replicas * case.accumulate > 1:
        return "each replica and each micro-batch draws dropout masks of its own"
    return ""


def baseline(case: Case) -> Case:
    """The same training, all of each batch at once on one device."""
    name = f"{case.name.partition('/')[0]}/single"
    return msgspec.structs.replace(
        case, name=name, strategy="single", accumulate=1, fit=False, workers=False,
        local_buffers=False, distribute_dataset=False, pipeline="gpipe",
    )  # fmt: skip
