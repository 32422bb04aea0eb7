"""The devices of a run, and whether they suffice for a case."""

import re
from typing import Literal, NamedTuple

from parity.config import schema, shards
from parity.config.pair import Pair
from parity.core.errors import UsageError

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


def has_ranks(case: schema.Case) -> bool:
    """Return whether PyTorch runs the case's strategy in one process per device."""
    return case.strategy in ("ddp", "all_reduce", "tensor_parallel", *schema.STAGED)


def processes(case: schema.Case, backend: str) -> int:
    """Return in how many processes (ranks) a backend runs a case."""
    return case.devices if (case.workers if backend == "keras" else has_ranks(case)) else 1


def blocks(model: schema.Model) -> int:
    """Return into how many consecutive blocks a model can be cut, as `blocks()` of both sides' models does."""
    match model:
        case schema.LinearStack():
            return model.layers
        case schema.SimpleBlock():
            return 3
        case schema.TwoLinear() | schema.ResidualBlock():
            return 2
        case schema.Transformer():
            return model.encoder_layers + model.decoder_layers
        case schema.Specimen() | Pair():
            return 1


def obstacle(case: schema.Case) -> str:
    """Return why the case cannot run on its number of devices, or "" if it can."""
    n, batch = case.devices, case.data.batch
    if case.strategy == "hybrid" and (n < 2 * schema.STAGES or n % schema.STAGES):
        return (
            f"hybrid trains replicas of {schema.STAGES} stages each: it needs an even number of devices, at least 4, "
            f"not {n}"
        )
    stages = {"hybrid": schema.STAGES, "pipeline": n, "send_recv": n}.get(case.strategy, 1)
    if stages > blocks(case.model):
        return f"the model has only {blocks(case.model)} consecutive blocks, too few for {stages} stages"
    smallest = min(map(len, shards.split(range(batch), case)))
    if smallest < case.accumulate:
        return (
            f"a batch of {batch} samples leaves one of {case.replicas} replicas with {smallest}, "
            f"but each replica needs at least {case.accumulate}"
        )
    if case.fit and batch % case.replicas:
        return (
            f"fit under MirroredStrategy needs equal parts: a batch of {batch} cannot be divided equally among "
            f"{case.replicas} replicas"
        )
    if case.strategy in ("pipeline", "hybrid") and any(
        len(part) % case.accumulate for part in shards.split(range(batch), case)
    ):
        return (
            f"torch.distributed.pipelining needs micro-batches of equal size: a batch of {batch} cannot be cut into "
            f"{case.accumulate} of them in every replica"
        )
    if case.strategy == "pipeline" and case.pipeline == "1f1b" and case.accumulate < n:
        return f"1F1B needs at least as many micro-batches as stages, not {case.accumulate} for {n} stages"
    return ""
