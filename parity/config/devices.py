"""The devices of a run, whether they suffice for a case, and the same training on a single one."""

import re
from typing import Literal, NamedTuple

import msgspec

from parity.config import shards
from parity.config.schema import UNUSED, Case
from parity.core.errors import UsageError
from parity.core.wording import count

Kind = Literal["cpu", "gpu"]


class Devices(NamedTuple):
    """A number of logical devices of one kind."""

    kind: Kind
    number: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}"


def parse(text: str) -> Devices:
    """Parse 'cpu:2' or 'gpu:1'. Raises UsageError."""
    match = re.fullmatch(r"(cpu|gpu):([1-9]\d{0,2})", text)
    if not match:
        raise UsageError(f"--devices={text}: expected auto, cpu:N or gpu:N, e.g. cpu:2")
    return Devices("cpu" if match[1] == "cpu" else "gpu", int(match[2]))


def obstacle(case: Case) -> str:
    """Return why the case cannot run on its number of devices, or "" if it can."""
    strategy, blocks = case.distribution, case.model.blocks
    if strategy.device_obstacle:
        return strategy.device_obstacle
    if strategy.stages > blocks:
        return f"the model has only {count(blocks, 'consecutive block')}, too few for {strategy.stages} stages"
    if strategy.stage_blocks and (len(strategy.stage_blocks), sum(strategy.stage_blocks)) != (strategy.stages, blocks):
        return (
            f"stage_blocks = {list(strategy.stage_blocks)} has {count(sum(strategy.stage_blocks), 'block')} in "
            f"{count(len(strategy.stage_blocks), 'stage')}, but the model has {blocks}, for {strategy.stages} stages"
        )
    sizes = [len(part) for part in shards.split(range(case.data.batch), case)]
    if min(sizes) < case.accumulate:
        return (
            f"a batch of {count(case.data.batch, 'sample')} leaves one of {case.replicas} replicas with {min(sizes)}, "
            f"but each replica needs at least {case.accumulate}"
        )
    return strategy.batch_obstacle(sizes)


def why_no_baseline(case: Case) -> str:
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
