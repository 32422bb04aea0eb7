"""Which devices a run has, and what a case needs of them."""

import re
from typing import Literal, NamedTuple

from parity.config import schema, shards
from parity.config.pair import Pair
from parity.core.errors import UsageError

Kind = Literal["cpu", "gpu"]


class Devices(NamedTuple):
    """So many logical devices of one kind."""

    kind: Kind
    number: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}"


def parse(text: str) -> Devices:
    """'cpu:2' or 'gpu:1'. Raises UsageError."""
    found = re.fullmatch(r"(cpu|gpu):([1-9]\d{0,2})", text)
    if not found:
        raise UsageError(f"--devices={text}: expected auto, cpu:N or gpu:N, e.g. cpu:2")
    return Devices("cpu" if found[1] == "cpu" else "gpu", int(found[2]))


def has_ranks(case: schema.Case) -> bool:
    """Whether PyTorch runs the case's strategy in one process per device."""
    return case.strategy in ("ddp", "all_reduce", "tensor_parallel", *schema.STAGED)


def processes(case: schema.Case, backend: str) -> int:
    """How many processes a backend runs a case in, one rank each."""
    return case.devices if (case.workers if backend == "keras" else has_ranks(case)) else 1


def blocks(model: schema.Model) -> int:
    """How many consecutive blocks a model can be cut into (`blocks()` of both sides' models)."""
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
    """Why the case cannot be run on as many devices as it has, or ""."""
    n, batch = case.devices, case.data.batch
    if case.strategy == "hybrid" and (n < 2 * schema.STAGES or n % schema.STAGES):
        return f"hybrid has replicas of {schema.STAGES} stages: it needs an even number of devices from 4 on, not {n}"
    stages = {"hybrid": schema.STAGES, "pipeline": n, "send_recv": n}.get(case.strategy, 1)
    if stages > blocks(case.model):
        return f"the model has {blocks(case.model)} consecutive blocks, too few for {stages} stages"
    smallest = min(map(len, shards.split(range(batch), case)))
    if smallest < case.accumulate:
        return f"a batch of {batch} leaves one of {case.replicas} replicas {smallest} samples"
    if case.fit and batch % case.replicas:
        return (
            f"fit under MirroredStrategy needs equal parts: {case.replicas} replicas do not divide a batch of {batch}"
        )
    if case.strategy in ("pipeline", "hybrid") and any(
        len(part) % case.accumulate for part in shards.split(range(batch), case)
    ):
        return f"torch.distributed.pipelining needs {case.accumulate} micro-batches of one size"
    if case.strategy == "pipeline" and case.pipeline == "1f1b" and case.accumulate < n:
        return f"1F1B needs as many micro-batches as stages: {case.accumulate} for {n}"
    return ""
