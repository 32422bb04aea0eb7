"""The strategies: what each needs of devices and samples, what it refuses, and how the two frameworks carry it out.

In a case the options of all strategies stand side by side, and `strategy` names the one to use; `Case.distribution`
makes the struct of that name from them. The rest of the program asks the struct, and never for a strategy by its name.
In these structs, a name with an annotation is an option of the case; one without is a constant of the strategy.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal, get_args

from msgspec import field

from parity.config.base import BaseStrategy, Positive
from parity.core.groups import by_key

Name = Literal[
    "single",
    "round_robin",
    "data_parallel",
    "ddp",
    "all_reduce",
    "send_recv",
    "pipeline",
    "hybrid",
    "branch_parallel",
    "tensor_parallel",
    "fsdp",
]
Schedule = Literal["gpipe", "1f1b"]


class Accumulating(BaseStrategy, frozen=True):
    """A strategy that can add up the gradients of several micro-batches before an update."""

    micro_batches: Positive = field(name="accumulate")


class Single(Accumulating, frozen=True, tag="single"):
    """One device; with `fit`, Keras trains with compile and fit."""

    is_distributed = False

    fit: bool

    @property
    def options_obstacle(self) -> str:
        together = self.fit and self.micro_batches > 1
        return "fit = true cannot accumulate gradients; use accumulate = 1" if together else ""


class RoundRobin(Accumulating, frozen=True, tag="round_robin"):
    """The model's blocks on the devices in turn, in one process."""


class DataParallel(BaseStrategy, frozen=True, tag="data_parallel"):
    """nn.DataParallel and MirroredStrategy; with `fit`, Keras trains with compile and fit."""

    is_replicated = True
    is_gathered = True

    fit: bool

    @property
    def loss_must_be_mean_because(self) -> str:
        divided = "fit with several replicas divides each replica's loss by the number of replicas"
        return divided if self.fit and self.replicas > 1 else ""

    def batch_obstacle(self, sizes: Sequence[int]) -> str:
        if not self.fit or not sum(sizes) % self.replicas:
            return ""
        return (
            f"fit under MirroredStrategy needs equal parts: a batch of {sum(sizes)} cannot be divided equally among "
            f"{self.replicas} replicas"
        )


class DDP(Accumulating, frozen=True, tag="ddp"):
    """DistributedDataParallel, and MirroredStrategy or, with `workers`, MultiWorkerMirroredStrategy.

    With `local_buffers`, each replica keeps its own buffers. With `distribute_dataset`, Keras splits the batches with
    experimental_distribute_dataset.
    """

    has_ranks = True
    is_replicated = True
    averages_gradients = True

    local_buffers: bool
    workers: bool
    distribute_dataset: bool

    @property
    def broadcasts_buffers(self) -> bool:
        return not self.local_buffers

    @property
    def loss_must_be_mean_because(self) -> str:
        weighted = "distribute_dataset weights the loss of each replica by its number of samples"
        return weighted if self.distribute_dataset else ""


class AllReduce(BaseStrategy, frozen=True, tag="all_reduce"):
    """Data parallelism by hand: each rank draws its own samples, and the program reduces the gradients."""

    has_ranks = True
    is_replicated = True
    reduces_itself = True
    samples_by_rank = True


class Staged(Accumulating, frozen=True):
    """A strategy that cuts the model into consecutive stages, one per device."""

    has_ranks = True
    is_staged = True

    stage_blocks: tuple[Positive, ...]


class SendRecv(Staged, frozen=True, tag="send_recv"):
    """Stages that exchange activations and gradients by messages, one micro-batch at a time."""


class Pipelined(Staged, frozen=True):
    """A strategy that has several micro-batches in flight, by torch.distributed.pipelining."""

    def batch_obstacle(self, sizes: Sequence[int]) -> str:
        if not any(size % self.micro_batches for size in sizes):
            return ""
        return (
            f"torch.distributed.pipelining needs micro-batches of equal size: a batch of {sum(sizes)} cannot be cut "
            f"into {self.micro_batches} of them in every replica"
        )


class Pipeline(Pipelined, frozen=True, tag="pipeline"):
    """Stages with several micro-batches in flight, in the order of `schedule`."""

    schedule: Schedule = field(name="pipeline")

    def batch_obstacle(self, sizes: Sequence[int]) -> str:
        if unequal := super().batch_obstacle(sizes):
            return unequal
        if self.schedule == "1f1b" and self.micro_batches < self.stages:
            return (
                f"1F1B needs at least as many micro-batches as stages, not {self.micro_batches} for {self.stages} "
                "stages"
            )
        return ""


class Hybrid(Pipelined, frozen=True, tag="hybrid"):
    """Data parallelism times pipeline stages, on a mesh of devices."""

    is_replicated = True
    reduces_itself = True
    stages = 2
    schedule: ClassVar[Schedule] = "gpipe"

    @property
    def replicas(self) -> int:
        return max(self.devices // self.stages, 1)

    @property
    def device_obstacle(self) -> str:
        if self.devices >= 2 * self.stages and not self.devices % self.stages:
            return ""
        return (
            f"hybrid trains replicas of {self.stages} stages each: it needs an even number of devices, at least "
            f"{2 * self.stages}, not {self.devices}"
        )


class BranchParallel(Accumulating, frozen=True, tag="branch_parallel"):
    """Modules that do not need each other's results, on different devices at the same time."""

    needs = "has_branches"


class TensorParallel(Accumulating, frozen=True, tag="tensor_parallel"):
    """Pairs of linear layers, split over the devices by columns and by rows."""

    has_ranks = True
    is_sharded = True
    needs = "has_linear_pairs"


class FSDP(Accumulating, frozen=True, tag="fsdp"):
    """Fully sharded data parallelism: every rank keeps a shard of each parameter, gradient and optimizer slot."""

    has_ranks = True
    is_replicated = True
    averages_gradients = True
    shards_parameters = True
    keras_obstacle = (
        "nothing of Keras on TensorFlow shards parameters over devices and trains: keras.distribution only places "
        "whole variables there, MirroredStrategy copies every variable to every device, and Keras 3 does not run under "
        "ParameterServerStrategy"
    )


Strategy = (
    Single
    | RoundRobin
    | DataParallel
    | DDP
    | AllReduce
    | SendRecv
    | Pipeline
    | Hybrid
    | BranchParallel
    | TensorParallel
    | FSDP
)


# The options of all strategies, by their names in a case, each with the strategies that have it.
OPTIONS: dict[str, list[str]] = by_key(
    (option, str(kind.__struct_config__.tag))
    for kind in get_args(Strategy)
    for option in kind.__struct_encode_fields__
    if option != "devices"
)
