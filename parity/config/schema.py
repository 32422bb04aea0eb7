"""The schema of a case: one model, built-in or a pair of the user's, trained by one strategy on one source of data.

The structs are frozen; an unknown field or a value of a wrong type is refused by name. Both backends
receive the same `Case`, with all its fields set, and nothing else.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from parity.config import strategies
from parity.config.base import BaseModel, Count, Fraction, Frozen, Positive, Rate
from parity.config.pair import Pair as Pair

Precision = Literal["float32", "bfloat16", "float16"]


class LinearStack(BaseModel, frozen=True, tag="linear_stack"):
    """A stack of `layers` times Linear(width, width), without activations between them."""

    layers: Positive = 6
    width: Positive = 512

    @property
    def blocks(self) -> int:
        return self.layers

    @property
    def sample_shape(self) -> tuple[int | None, ...]:
        return (self.width,)

    def output_shape(self, sample: tuple[int, ...]) -> tuple[int, ...]:
        return (self.width,)


class Perceptron(BaseModel, frozen=True):
    """Linear, ReLU, Linear."""

    inputs: Positive = 10
    hidden: Positive = 20
    outputs: Positive = 5

    @property
    def sample_shape(self) -> tuple[int | None, ...]:
        return (self.inputs,)

    def output_shape(self, sample: tuple[int, ...]) -> tuple[int, ...]:
        return (self.outputs,)


class SimpleBlock(Perceptron, frozen=True, tag="simple_block"):
    """A perceptron whose layers are named linear1 and linear2, as in a transformer's feed-forward block."""

    has_linear_pairs = True
    blocks = 3


class TwoLinear(Perceptron, frozen=True, tag="two_linear"):
    """Two stages of one Linear each, with a ReLU between: the smallest model for model parallelism."""

    blocks = 2

    outputs: Positive = 1


class ResidualBlock(BaseModel, frozen=True, tag="residual_block"):
    """A ResNet block: conv-BN-ReLU-conv-BN plus a shortcut, which is a convolution if the channel counts differ."""

    has_batch_norm = True
    has_branches = True
    blocks = 2

    in_channels: Positive = 3
    out_channels: Positive = 16

    @property
    def sample_shape(self) -> tuple[int | None, ...]:
        return (self.in_channels, None, None)

    def output_shape(self, sample: tuple[int, ...]) -> tuple[int, ...]:
        return (self.out_channels, *sample[1:])


class Transformer(BaseModel, frozen=True, tag="transformer"):
    """A sequence-to-sequence transformer with one embedding shared by source and target."""

    batch_axis = 1
    has_branches = True
    has_linear_pairs = True

    vocabulary: Positive = 1000
    d_model: Positive = 256
    heads: Positive = 4
    encoder_layers: Positive = 2
    decoder_layers: Positive = 2
    feed_forward: Positive = 2048
    dropout: Fraction = 0.1
    causal: bool = False

    @property
    def blocks(self) -> int:
        return self.encoder_layers + self.decoder_layers

    @property
    def sample_shape(self) -> tuple[int | None, ...]:
        return (None,)

    def output_shape(self, sample: tuple[int, ...]) -> tuple[int, ...]:
        return (*sample, self.vocabulary)

    def __post_init__(self) -> None:
        if self.d_model % self.heads:
            raise ValueError(
                f"d_model is {self.d_model}, which cannot be divided among {self.heads} heads; "
                "choose a d_model that is a multiple of heads"
            )


class Specimen(BaseModel, frozen=True, tag="specimen"):
    """A sequence of the layers that the other models lack, on images of 16x16; only planted faults use it."""

    is_distributable = False
    sample_shape = (3, 16, 16)  # channels, height and width

    classes: Positive = 10

    def output_shape(self, sample: tuple[int, ...]) -> tuple[int, ...]:
        return (self.classes,)


Model = LinearStack | SimpleBlock | TwoLinear | ResidualBlock | Transformer | Specimen | Pair


class Data(Frozen, frozen=True):
    """The source of the batches.

    `source` is diabetes, digits, photographs, text, text:FILE, synthetic, or the path of an .npz file
    with the arrays `inputs` (or `input_0`, `input_1`...) and `target`.
    """

    source: str = "synthetic"
    batch: Positive = 32
    length: Positive = 10  # words per sequence (text)
    size: Positive = 32  # height and width of an image in pixels (photographs)
    scale: Annotated[float, Meta(gt=0.0)] = 1.0  # a factor for float inputs


class Loss(Frozen, frozen=True):
    """The training loss; with `target` "zeros", mse compares the outputs with zeros instead of the data's target."""

    kind: Literal["mse", "cross_entropy"] = "mse"
    reduction: Literal["mean", "sum"] = "mean"
    target: Literal["data", "zeros"] = "data"

    def __post_init__(self) -> None:
        if self.kind == "cross_entropy" and self.target == "zeros":
            raise ValueError("loss.target = 'zeros' works only with mse; use target = 'data'")


class SGD(Frozen, frozen=True, tag_field="kind", tag="sgd"):
    """Stochastic gradient descent as in torch.optim.SGD: v = momentum v + g; p = p - learning_rate v."""

    learning_rate: Rate = 0.01
    momentum: Fraction = 0.0
    nesterov: bool = False
    weight_decay: Rate = 0.0

    def __post_init__(self) -> None:
        if self.nesterov and not self.momentum:
            raise ValueError("optimizer.nesterov needs a momentum above 0, received momentum = 0.0")


class Adam(Frozen, frozen=True, tag_field="kind", tag="adam"):
    """Adam as in torch.optim.Adam: weight decay is added to the gradient."""

    learning_rate: Rate = 0.001
    beta1: Fraction = 0.9
    beta2: Fraction = 0.999
    epsilon: Rate = 1e-8
    weight_decay: Rate = 0.0


class AdamW(Adam, frozen=True, tag_field="kind", tag="adamw"):
    """Adam with decoupled weight decay as in torch.optim.AdamW: the decay shrinks the parameter directly."""

    weight_decay: Rate = 0.01


Optimizer = SGD | Adam | AdamW


class Schedule(Frozen, frozen=True):
    """A schedule that multiplies the learning rate by `factor` after every `every` steps (torch's StepLR)."""

    every: Positive
    factor: Annotated[float, Meta(gt=0.0)] = 0.1


class Case(Frozen, frozen=True):
    """Everything that both backends need to know to run one comparison."""

    name: str
    model: Model
    strategy: strategies.Name = "single"
    devices: Positive = 2  # logical devices
    data: Data = Data()
    loss: Loss = Loss()
    optimizer: Optimizer = SGD()
    schedule: Schedule | None = None
    clip_norm: Annotated[float, Meta(gt=0.0)] | None = None
    accumulate: Positive = 1  # micro-batches per step and replica
    pipeline: strategies.Schedule = "gpipe"  # the schedule of a pipeline's micro-batches
    stage_blocks: tuple[Positive, ...] = ()  # of how many blocks each stage consists (default: nearly as many each)
    local_buffers: bool = False  # ddp: each replica keeps its own buffers (DDP's broadcast_buffers=False)
    workers: bool = False  # ddp: Keras, too, runs one process per device (MultiWorkerMirroredStrategy)
    distribute_dataset: bool = False  # ddp: Keras splits the batches with experimental_distribute_dataset
    fit: bool = False  # Keras trains with compile and fit instead of a training loop
    graph: bool = False  # Keras's float64 run is traced to a graph, as its run at `precision` is, not run op by op
    steps: Positive = 5
    every: Positive = 1  # between the first and the last step, record losses and gradients every so many steps
    seed: Count = 0
    precision: Precision = "float32"
    weight_scale: dict[str, float] = {}  # factors for initial weights, by canonical name

    @property
    def distribution(self) -> strategies.Strategy:
        """Return the case's strategy with its options; it answers what depends on the strategy."""
        strategy: strategies.Strategy = msgspec.convert(self, strategies.Strategy, from_attributes=True)
        return strategy

    @property
    def replicas(self) -> int:
        """Return the number of replicas of the model that train side by side."""
        return self.distribution.replicas

    @property
    def dropout(self) -> float:
        """Rate at which the model drops activations in training."""
        return self.model.dropout

    def __post_init__(self) -> None:
        for option, users in strategies.OPTIONS.items():
            value = getattr(self, option)
            if value != UNUSED[option] and self.strategy not in users:
                *first, last = map(repr, users)
                needed = f"{', '.join(first)} or {last}" if first else last
                raise ValueError(
                    f"{option} = {_toml(value)} needs the strategy {needed}, received {self.strategy!r}; "
                    f"otherwise set {option} = {_toml(UNUSED[option])}"
                )
        if obstacle := self._obstacle():
            raise ValueError(obstacle)

    def _obstacle(self) -> str:
        """Return why these settings do not go together, or ""."""
        strategy, kind, is_mean = self.distribution, type(self.model).__name__, self.loss.reduction == "mean"
        if self.accumulate > 1 and not is_mean:
            return "accumulate > 1 gives the gradient of the full batch only with loss.reduction = 'mean'"
        if self.accumulate > self.data.batch:
            batch = f"accumulate is {self.accumulate}, but data.batch is only {self.data.batch}"
            return f"{batch}; a micro-batch needs at least one sample"
        if strategy.options_obstacle:
            return strategy.options_obstacle
        if not is_mean and (what := strategy.loss_must_be_mean_because):
            return f"{what}, which gives the loss of the whole batch only with loss.reduction = 'mean'"
        if self.clip_norm and strategy.splits_model:
            return f"clip_norm needs all gradients on one device, but {self.strategy!r} spreads them over several"
        if not strategy.can_split(self.model):
            return f"the strategy {self.strategy!r} cannot split the model {kind}"
        if strategy.is_distributed and not self.model.is_distributable:
            return f"a {kind.lower()} can only be trained with the strategy 'single', received {self.strategy!r}"
        return ""


# The options of strategies with the values that switch them off, as for a training on a single device.
UNUSED: dict[str, Any] = {
    field.name: field.default for field in msgspec.structs.fields(Case) if field.name in strategies.OPTIONS
}


def _toml(value: int | str | tuple[int, ...]) -> str:
    """Return the value of an option as it is written in TOML."""
    if isinstance(value, tuple):
        return str(list(value))
    return str(value).lower() if isinstance(value, bool) else repr(value)
