"""The built-in models of a case."""

from parity.config.base import BaseModel, Fraction, Positive


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
