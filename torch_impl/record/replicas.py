"""The recorders of this process, and which of them stores a tensor: the process's own, or its device's replica's."""

import torch

from parity.runtime.drive import Run
from parity.trace.recorder import Recorder

BETWEEN = ("relu", "dropout")  # in tensor_parallel each rank has only a part of these activations: not compared
SPLIT = ("linear1", "linear2")  # in tensor_parallel their inputs are parts, or a copy on each device: not recorded


class Replicas:
    """The replicas that this process records.

    In tensor_parallel, rank 0 records what all ranks have in common, and the others only their shards.
    """

    def __init__(self, run: Run, rank: int):
        case, strategy = run.case, run.case.distribution
        self.recorders, self.rank = run.recorders, rank
        self.gathered, self.sharded = strategy.is_gathered, strategy.is_sharded
        self.silent = self.sharded and rank > 0
        # Whether the gradients of each replica are recorded besides those that are applied.
        self.local = case.replicas > 1 or case.clip_norm is not None
        # nn.DataParallel's replicas tell of their gradients themselves; fully_shard shows none that is not reduced.
        self.is_unreduced = self.local and not (self.gathered and case.replicas > 1) and not strategy.shards_parameters
        # How often a step accumulates a gradient (fully_shard: once reduced), and what a rank's loss is multiplied by.
        self.passes = 1 if self.gathered or strategy.shards_parameters else case.accumulate
        self.scale = case.replicas if strategy.averages_gradients else 1

    @property
    def first(self) -> Recorder:
        """Return the recorder of what is recorded once per process."""
        return next(iter(self.recorders.values()))

    def recorder(self, kind: str, tensor: torch.Tensor) -> Recorder:
        """Return the recorder of the replica that a tensor belongs to."""
        return self.recorders[tensor.device.index] if self.gathered and kind != "loss" else self.first

    def takes_input(self, path: str) -> bool:
        """Return whether a module's input is a whole tensor, rather than a part of one."""
        return not (self.sharded and path.rpartition(".")[2] in (*BETWEEN, *SPLIT))

    def takes_output(self, path: str) -> bool:
        """Return whether a module's output can be compared, as a whole or shard by shard."""
        return not (self.sharded and path.rpartition(".")[2] in BETWEEN)

    def end_step(self) -> None:
        """Let what is recorded from now on belong to the next step."""
        for recorder in self.recorders.values():
            recorder.next_step()
