"""The schema of a case: one model, trained by one strategy on one source of data.

The structs are frozen; an unknown field or a value of a wrong type is refused by name. Both backends
receive the same `Case`, with all its fields set, and nothing else.
"""

from typing import Annotated, Literal

from msgspec import Meta

from parity.config.frozen import Count, Fraction, Frozen, Positive, Rate
from parity.config.pair import Pair

Precision = Literal["float32", "bfloat16", "float16"]
Strategy = Literal[
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
]
REPLICATED = ("data_parallel", "ddp", "all_reduce", "hybrid")  # several replicas of the model
STAGED = ("send_recv", "pipeline", "hybrid")  # every replica is cut into consecutive stages, one per device
STAGES = 2  # the stages of each replica in hybrid


class LinearStack(Frozen, frozen=True, tag_field="kind", tag="linear_stack"):
    """A stack of `layers` times Linear(width, width), without activations between them."""

    layers: Positive = 6
    width: Positive = 512


class SimpleBlock(Frozen, frozen=True, tag_field="kind", tag="simple_block"):
    """A perceptron of Linear, ReLU, Linear."""

    inputs: Positive = 10
    hidden: Positive = 20
    outputs: Positive = 5


class TwoLinear(Frozen, frozen=True, tag_field="kind", tag="two_linear"):
    """Two stages of one Linear each, with a ReLU between: the smallest model for model parallelism."""

    inputs: Positive = 10
    hidden: Positive = 20
    outputs: Positive = 1


class ResidualBlock(Frozen, frozen=True, tag_field="kind", tag="residual_block"):
    """A ResNet block: conv-BN-ReLU-conv-BN plus a shortcut, which is a convolution if the channel counts differ."""

    in_channels: Positive = 3
    out_channels: Positive = 16


class Transformer(Frozen, frozen=True, tag_field="kind", tag="transformer"):
    """A sequence-to-sequence transformer with one embedding shared by source and target."""

    vocabulary: Positive = 1000
    d_model: Positive = 256
    heads: Positive = 4
    encoder_layers: Positive = 2
    decoder_layers: Positive = 2
    feed_forward: Positive = 2048
    dropout: Fraction = 0.1
    causal: bool = False

    def __post_init__(self) -> None:
        if self.d_model % self.heads:
            raise ValueError(
                f"d_model is {self.d_model}, which cannot be divided among {self.heads} heads; "
                "choose a d_model that is a multiple of heads"
            )


class Specimen(Frozen, frozen=True, tag_field="kind", tag="specimen"):
    """A sequence of the layers that the other models lack, on images of 16x16; only planted faults use it."""

    classes: Positive = 10


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
    strategy: Strategy = "single"
    devices: Positive = 2  # logical devices
    data: Data = Data()
    loss: Loss = Loss()
    optimizer: Optimizer = SGD()
    schedule: Schedule | None = None
    clip_norm: Annotated[float, Meta(gt=0.0)] | None = None
    accumulate: Positive = 1  # micro-batches per step and replica
    pipeline: Literal["gpipe", "1f1b"] = "gpipe"  # the schedule of a pipeline's micro-batches
    local_buffers: bool = False  # ddp: each replica keeps its own buffers (DDP's broadcast_buffers=False)
    workers: bool = False  # ddp: Keras, too, runs one process per device (MultiWorkerMirroredStrategy)
    distribute_dataset: bool = False  # ddp: Keras splits the batches with experimental_distribute_dataset
    fit: bool = False  # Keras trains with compile and fit instead of a training loop
    steps: Positive = 5
    every: Positive = 1  # between the first and the last step, record losses and gradients every so many steps
    seed: Count = 0
    precision: Precision = "float32"
    weight_scale: dict[str, float] = {}  # factors for initial weights, by canonical name

    @property
    def replicas(self) -> int:
        """Number of replicas of the model that train side by side."""
        if self.strategy == "hybrid":
            return max(self.devices // STAGES, 1)
        return self.devices if self.strategy in REPLICATED else 1

    @property
    def dropout(self) -> float:
        """Rate at which the model drops activations in training."""
        return self.model.dropout if isinstance(self.model, Transformer) else 0.0

    def __post_init__(self) -> None:
        self._check_accumulation()
        self._check_strategy()

    def _check_accumulation(self) -> None:
        if self.accumulate == 1:
            return
        if self.loss.reduction != "mean":
            raise ValueError("accumulate > 1 gives the gradient of the full batch only with loss.reduction = 'mean'")
        if self.accumulate > self.data.batch:
            raise ValueError(
                f"accumulate is {self.accumulate}, but data.batch is only {self.data.batch}; "
                "a micro-batch needs at least one sample"
            )
        if self.strategy in ("data_parallel", "all_reduce"):
            raise ValueError(f"the strategy {self.strategy!r} cannot accumulate gradients; use accumulate = 1")
        if self.fit:
            raise ValueError("fit = true cannot accumulate gradients; use accumulate = 1")

    def _check_strategy(self) -> None:
        for option in ("local_buffers", "workers", "distribute_dataset"):
            if getattr(self, option) and self.strategy != "ddp":
                raise ValueError(f"{option} is an option of the strategy 'ddp', received strategy {self.strategy!r}")
        if self.fit and self.replicas > 1 and self.loss.reduction != "mean":
            raise ValueError(
                "fit with several replicas divides each replica's loss by the number of replicas, which gives the "
                "loss of the whole batch only with loss.reduction = 'mean'"
            )
        if self.distribute_dataset and self.loss.reduction != "mean":
            raise ValueError(
                "distribute_dataset weights the loss of each replica by its number of samples, which gives the loss "
                "of the whole batch only with loss.reduction = 'mean'"
            )
        if self.fit and self.strategy not in ("single", "data_parallel"):
            raise ValueError(f"fit = true needs the strategy 'single' or 'data_parallel', received {self.strategy!r}")
        if self.clip_norm and self.strategy in (*STAGED, "tensor_parallel"):
            raise ValueError(
                f"clip_norm needs all gradients on one device, but {self.strategy!r} spreads them over several"
            )
        if self.pipeline != "gpipe" and self.strategy != "pipeline":
            raise ValueError(f"pipeline = {self.pipeline!r} needs the strategy 'pipeline', received {self.strategy!r}")
        kinds = {"branch_parallel": (ResidualBlock, Transformer), "tensor_parallel": (SimpleBlock, Transformer)}
        if not isinstance(self.model, kinds.get(self.strategy, Frozen)):
            raise ValueError(f"the strategy {self.strategy!r} cannot split the model {type(self.model).__name__}")
        if isinstance(self.model, (Specimen, Pair)) and self.strategy != "single":
            kind = type(self.model).__name__.lower()
            raise ValueError(f"a {kind} can only be trained with the strategy 'single', received {self.strategy!r}")
