"""What a case may say. Frozen structs; an unknown field or a wrong type is refused by name.

A case is one model, trained by one strategy on one source of data. Both backends receive the same
`Case`, resolved, and nothing else.
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
STAGED = ("send_recv", "pipeline", "hybrid")  # every replica cut into consecutive stages
STAGES = 2  # of each replica of hybrid


class LinearStack(Frozen, frozen=True, tag_field="kind", tag="linear_stack"):
    """`layers` times Linear(width, width), no activation between."""

    layers: Positive = 6
    width: Positive = 512


class SimpleBlock(Frozen, frozen=True, tag_field="kind", tag="simple_block"):
    """Linear, ReLU, Linear."""

    inputs: Positive = 10
    hidden: Positive = 20
    outputs: Positive = 5


class TwoLinear(Frozen, frozen=True, tag_field="kind", tag="two_linear"):
    """Two stages of one Linear each, with a ReLU between: the model for model parallelism."""

    inputs: Positive = 10
    hidden: Positive = 20
    outputs: Positive = 1


class ResidualBlock(Frozen, frozen=True, tag_field="kind", tag="residual_block"):
    """conv-BN-ReLU-conv-BN beside a shortcut; the shortcut is a convolution where channels differ."""

    in_channels: Positive = 3
    out_channels: Positive = 16


class Transformer(Frozen, frozen=True, tag_field="kind", tag="transformer"):
    """A sequence-to-sequence transformer with one embedding for source and target."""

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
                f"d_model is {self.d_model}, which {self.heads} heads do not divide; "
                "choose a d_model that is a multiple of heads"
            )


class Specimen(Frozen, frozen=True, tag_field="kind", tag="specimen"):
    """The layers that the other models lack, one after the other on images of 16x16: for planted faults only."""

    classes: Positive = 10


Model = LinearStack | SimpleBlock | TwoLinear | ResidualBlock | Transformer | Specimen | Pair


class Data(Frozen, frozen=True):
    """Where batches come from.

    `source`: diabetes, digits, photographs, text, text:FILE, synthetic, or the path of an .npz file
    with the arrays `inputs` (or `input_0`, `input_1`...) and `target`.
    """

    source: str = "synthetic"
    batch: Positive = 32
    length: Positive = 10  # words in a sequence (text)
    size: Positive = 32  # pixels of a patch's side (photographs)
    scale: Annotated[float, Meta(gt=0.0)] = 1.0  # multiplies float inputs


class Loss(Frozen, frozen=True):
    """A scalar. `target` zeros compares the outputs with zeros (mse only)."""

    kind: Literal["mse", "cross_entropy"] = "mse"
    reduction: Literal["mean", "sum"] = "mean"
    target: Literal["data", "zeros"] = "data"

    def __post_init__(self) -> None:
        if self.kind == "cross_entropy" and self.target == "zeros":
            raise ValueError("loss.target is 'zeros', which only mse can have; use target = 'data'")


class SGD(Frozen, frozen=True, tag_field="kind", tag="sgd"):
    """torch.optim.SGD's formula: v = momentum v + g; p = p - learning_rate v."""

    learning_rate: Rate = 0.01
    momentum: Fraction = 0.0
    nesterov: bool = False
    weight_decay: Rate = 0.0

    def __post_init__(self) -> None:
        if self.nesterov and not self.momentum:
            raise ValueError("optimizer.nesterov needs a momentum above 0, received momentum = 0.0")


class Adam(Frozen, frozen=True, tag_field="kind", tag="adam"):
    """torch.optim.Adam's formula; weight decay is added to the gradient."""

    learning_rate: Rate = 0.001
    beta1: Fraction = 0.9
    beta2: Fraction = 0.999
    epsilon: Rate = 1e-8
    weight_decay: Rate = 0.0


class AdamW(Adam, frozen=True, tag_field="kind", tag="adamw"):
    """torch.optim.AdamW's formula; weight decay shrinks the parameter."""

    weight_decay: Rate = 0.01


Optimizer = SGD | Adam | AdamW


class Schedule(Frozen, frozen=True):
    """The learning rate times `factor` after every `every` steps (torch's StepLR)."""

    every: Positive
    factor: Annotated[float, Meta(gt=0.0)] = 0.1


class Case(Frozen, frozen=True):
    """One comparison, resolved: what both backends run."""

    name: str
    model: Model
    strategy: Strategy = "single"
    devices: Positive = 2  # logical devices
    data: Data = Data()
    loss: Loss = Loss()
    optimizer: Optimizer = SGD()
    schedule: Schedule | None = None
    clip_norm: Annotated[float, Meta(gt=0.0)] | None = None
    accumulate: Positive = 1  # micro-batches per step, of each replica
    pipeline: Literal["gpipe", "1f1b"] = "gpipe"  # the order of a pipeline's micro-batches
    local_buffers: bool = False  # ddp: every replica keeps buffers of its own
    workers: bool = False  # ddp: Keras runs one process per device too
    distribute_dataset: bool = False  # ddp: Keras splits the batches by itself
    fit: bool = False  # Keras trains through compile and fit
    steps: Positive = 5
    every: Positive = 1  # losses and gradients of every k-th step between the first and the last
    seed: Count = 0
    precision: Precision = "float32"
    weight_scale: dict[str, float] = {}  # initial weights multiplied, by canonical name

    @property
    def replicas(self) -> int:
        """How many replicas of the model train side by side."""
        if self.strategy == "hybrid":
            return max(self.devices // STAGES, 1)
        return self.devices if self.strategy in REPLICATED else 1

    @property
    def dropout(self) -> float:
        """The rate at which the model drops activations in training."""
        return self.model.dropout if isinstance(self.model, Transformer) else 0.0

    def __post_init__(self) -> None:
        self._check_accumulation()
        self._check_strategy()

    def _check_accumulation(self) -> None:
        if self.accumulate == 1:
            return
        if self.loss.reduction != "mean":
            raise ValueError("accumulate > 1 equals the full batch only for loss.reduction = 'mean'")
        if self.accumulate > self.data.batch:
            raise ValueError(
                f"accumulate is {self.accumulate}, more than the batch of {self.data.batch}; "
                "a micro-batch needs at least one sample"
            )
        if self.strategy in ("data_parallel", "all_reduce"):
            raise ValueError(f"{self.strategy!r} takes the batch of a replica whole; use accumulate = 1")
        if self.fit:
            raise ValueError("fit takes whole batches; use accumulate = 1 with fit = true")

    def _check_strategy(self) -> None:
        for option in ("local_buffers", "workers", "distribute_dataset"):
            if getattr(self, option) and self.strategy != "ddp":
                raise ValueError(f"{option} is an option of the strategy 'ddp', received strategy {self.strategy!r}")
        if self.fit and self.replicas > 1 and self.loss.reduction != "mean":
            raise ValueError(
                "fit under several replicas divides each one's loss by their number, which gives the whole batch's "
                "loss only for loss.reduction = 'mean'"
            )
        if self.distribute_dataset and self.loss.reduction != "mean":
            raise ValueError(
                "distribute_dataset weighs the parts that TensorFlow cuts by their samples, which gives the whole "
                "batch's loss only for loss.reduction = 'mean'"
            )
        if self.fit and self.strategy not in ("single", "data_parallel"):
            raise ValueError(f"fit = true needs the strategy 'single' or 'data_parallel', received {self.strategy!r}")
        if self.clip_norm and self.strategy in (*STAGED, "tensor_parallel"):
            raise ValueError(f"clip_norm needs all gradients in one place, which {self.strategy!r} does not have")
        if self.pipeline != "gpipe" and self.strategy != "pipeline":
            raise ValueError(f"pipeline = {self.pipeline!r} needs the strategy 'pipeline', received {self.strategy!r}")
        kinds = {"branch_parallel": (ResidualBlock, Transformer), "tensor_parallel": (SimpleBlock, Transformer)}
        if not isinstance(self.model, kinds.get(self.strategy, Frozen)):
            raise ValueError(f"{self.strategy!r} has nothing to spread in a {type(self.model).__name__}")
        if isinstance(self.model, (Specimen, Pair)) and self.strategy != "single":
            kind = type(self.model).__name__.lower()
            raise ValueError(f"a {kind} trains by the strategy 'single' alone, received {self.strategy!r}")
