"""The base classes of all configs, of the models and of the strategies, with the properties that other code reads.

No code compares the name of a model or a strategy. A new one overrides the properties that are different for it.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

Positive = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=0)]
Rate = Annotated[float, Meta(ge=0.0)]
Fraction = Annotated[float, Meta(ge=0.0, lt=1.0)]


class Frozen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all configs: immutable, with keyword arguments only, and without unknown fields."""


class BaseModel(Frozen, frozen=True, tag_field="kind"):
    """What every model answers. Overridden here or by a field of the same name where another answer is right."""

    batch_axis: ClassVar[int] = 0  # the axis of the samples in inputs, activations and targets
    has_batch_norm: ClassVar[bool] = False  # the samples of a batch influence each other's activations
    has_branches: ClassVar[bool] = False  # modules that do not need each other's results: branch_parallel
    has_linear_pairs: ClassVar[bool] = False  # linear1 and linear2 in a row: tensor_parallel
    is_distributable: ClassVar[bool] = True  # other strategies than single can train it
    # Constants without annotation, so that a model may have a field of the same name.
    dropout = 0.0  # the rate at which the model drops activations in training
    heads = 0  # of each attention; 0 if the config does not say
    causal = False  # the decoder's self-attention is masked, so that no position sees a later one
    vocabulary = 0  # the number of different words, if the inputs are word ids; 0 if they are numbers

    @property
    def blocks(self) -> int:
        """Return the number of consecutive blocks into which `blocks()` of both sides' models cuts the model."""
        return 1

    @property
    def sample_shape(self) -> tuple[int | None, ...]:
        """Shape of one sample of each input, where None stands for any size. Raises TypeError if inputs differ."""
        raise TypeError(f"the inputs of a {type(self).__name__} have no common shape")

    def output_shape(self, sample: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the output for a sample of the given shape. Raises TypeError if there are several."""
        raise TypeError(f"the outputs of a {type(self).__name__} have no common shape")

    @property
    def trains(self) -> bool:
        """Return whether the model is trained, rather than run forward and backward once."""
        return True


class BaseStrategy(Frozen, frozen=True, tag_field="strategy"):
    """What every strategy answers; as it stands here, a program in one process with one replica of the model.

    Overridden by a strategy, or by an option of the same name, where another answer is right.
    """

    devices: Positive  # the number of logical devices of the case

    is_distributed: ClassVar[bool] = True  # whether more than one device is used
    has_ranks: ClassVar[bool] = False  # whether PyTorch runs one process per device
    is_replicated: ClassVar[bool] = False  # whether it trains several replicas of the model side by side
    # Whether PyTorch runs all replicas in one process and gathers their outputs for a single loss.
    is_gathered: ClassVar[bool] = False
    is_staged: ClassVar[bool] = False  # whether each replica is cut into consecutive stages, one per device
    is_sharded: ClassVar[bool] = False  # whether single layers are split over the devices
    # Whether PyTorch reduces gradients to their mean, so that losses are scaled by the ranks.
    averages_gradients: ClassVar[bool] = False
    # Whether the training program reduces the gradients, rather than the framework.
    reduces_itself: ClassVar[bool] = False
    samples_by_rank: ClassVar[bool] = False  # whether each rank draws its own samples by a DistributedSampler
    # Whether each rank of PyTorch keeps only a shard of every parameter between the passes.
    shards_parameters: ClassVar[bool] = False
    keras_obstacle: ClassVar[str] = ""  # why Keras on TensorFlow cannot train by it, or ""
    needs: ClassVar[str] = ""  # the constant of a model that has the parts which are spread over the devices, if any
    # Constants without annotation, so that a strategy may have an option of the same name.
    fit = False  # whether Keras trains with compile and fit instead of a training loop
    distribute_dataset = False  # whether Keras splits the batches with experimental_distribute_dataset
    workers = False  # whether Keras, too, runs one process per device

    @property
    def used_devices(self) -> int:
        """Return the number of logical devices that the training uses."""
        return self.devices if self.is_distributed else 1

    @property
    def has_dtensors(self) -> bool:
        """Return whether PyTorch's ranks hold parts of tensors as DTensors."""
        return self.is_sharded or self.shards_parameters

    @property
    def replicas(self) -> int:
        """Return the number of replicas of the model."""
        return self.devices if self.is_replicated else 1

    @property
    def stages(self) -> int:
        """Return the number of consecutive stages of each replica."""
        return self.devices if self.is_staged else 1

    @property
    def stage_blocks(self) -> tuple[int, ...]:
        """Return how many of the model's blocks each stage has, or () for stages of nearly equal length."""
        return ()

    def cut(self, blocks: int) -> list[int]:
        """Return the number of blocks of each stage; where it is not given, the first stages get the extra blocks."""
        least, extra = divmod(blocks, self.stages)
        return list(self.stage_blocks) or [least + (stage < extra) for stage in range(self.stages)]

    @property
    def splits_model(self) -> bool:
        """Return whether each rank of PyTorch holds only a part of the model, so that ranks exchange activations."""
        return self.is_staged or self.is_sharded

    @property
    def is_mirrored(self) -> bool:
        """Return whether Keras runs all replicas in one process, where each expects its samples on its own device."""
        return self.is_replicated and not self.is_staged and not self.workers

    @property
    def is_chunked(self) -> bool:
        """Return whether the framework cuts the batch, in parts of ceil(samples / replicas); else the program does."""
        return self.is_gathered or self.distribute_dataset

    @property
    def broadcasts_buffers(self) -> bool:
        """Return whether replica 0 sends its buffers to the others before each forward pass."""
        return False

    @property
    def options_obstacle(self) -> str:
        """Return why it cannot have these options together, or ""."""
        return ""

    @property
    def loss_must_be_mean_because(self) -> str:
        """Return why the loss must be a mean over the samples (what the strategy does to it), or ""."""
        return ""

    @property
    def device_obstacle(self) -> str:
        """Return why it cannot run on the number of devices, or ""."""
        return ""

    def side_obstacle(self, backend: str) -> str:
        """Return why a backend cannot train by it at all, or ""."""
        return self.keras_obstacle if backend == "keras" else ""

    def processes(self, backend: str) -> int:
        """Return in how many processes (ranks) a backend runs it."""
        return self.devices if self.workers or (backend == "torch" and self.has_ranks) else 1

    def can_split(self, model: BaseModel) -> bool:
        """Return whether the model has the parts that are spread over the devices."""
        return not self.needs or bool(getattr(model, self.needs))

    def batch_obstacle(self, sizes: Sequence[int]) -> str:
        """Return why it cannot train on a batch, or "". `sizes`: the number of samples of each replica's part."""
        return ""
