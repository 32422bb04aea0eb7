"""Image models in PyTorch for those of keras.applications: Hugging Face's, and the classic ones by hand."""

import torch
import transformers as hf
from torch import nn
from torch.nn import functional as F  # noqa: N812

NORM = {"eps": 1.001e-5, "momentum": 0.01}  # as keras.applications has them


def convnext() -> nn.Module:
    config = hf.ConvNextConfig(hidden_sizes=[16, 24, 32, 40], depths=[1, 2, 1, 1], layer_scale_init_value=0.1)
    return hf.ConvNextModel(config)


def mobilenet() -> nn.Module:
    return hf.MobileNetV1Model(hf.MobileNetV1Config(depth_multiplier=0.25, tf_padding=True), add_pooling_layer=False)


def mobilenet_v2() -> nn.Module:
    config = hf.MobileNetV2Config(depth_multiplier=0.35, tf_padding=True, finegrained_output=True)
    return hf.MobileNetV2Model(config, add_pooling_layer=False)


class Scaled(nn.Module):
    """The division by 255 that Keras's EfficientNet does itself."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, image):
        return self.model(image / 255)


def efficientnet() -> nn.Module:
    blocks = {"kernel_sizes": [3, 5], "in_channels": [32, 8], "out_channels": [8, 16], "depthwise_padding": []}
    blocks |= {"strides": [1, 2], "num_block_repeats": [1, 2], "expand_ratios": [1, 4], "squeeze_expansion_ratio": 0.25}
    sizes = {"width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280, "drop_connect_rate": 0.0}
    return Scaled(hf.EfficientNetModel(hf.EfficientNetConfig(**blocks, **sizes)))


def resnet50() -> nn.Module:
    sizes = {"embedding_size": 64, "hidden_sizes": [32, 64], "depths": [1, 2], "downsample_in_bottleneck": True}
    return hf.ResNetModel(hf.ResNetConfig(**sizes))


class DenseLayer(nn.Module):
    def __init__(self, width: int, growth: int, norm: dict) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(width, **norm), nn.Conv2d(width, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth, **norm)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x):
        new = self.conv2(F.relu(self.norm2(self.conv1(F.relu(self.norm1(x))))))
        return torch.cat([x, new], 1)


class DenseNet(nn.Sequential):
    """torchvision's DenseNet, small; `norm`: other arguments of its batch norms than the defaults."""

    def __init__(self, blocks: list[int], norm: dict, growth: int = 32) -> None:
        layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64, **norm), nn.ReLU()]
        layers.append(nn.MaxPool2d(3, 2, 1))
        width = 64
        for number, depth in enumerate(blocks):
            for _ in range(depth):
                layers.append(DenseLayer(width, growth, norm))
                width += growth
            if number + 1 < len(blocks):
                layers += [nn.BatchNorm2d(width, **norm), nn.ReLU(), nn.Conv2d(width, width // 2, 1, bias=False)]
                layers.append(nn.AvgPool2d(2))
                width //= 2
        super().__init__(*layers, nn.BatchNorm2d(width, **norm), nn.ReLU())


def densenet() -> nn.Module:
    return DenseNet([1, 1, 1, 1], NORM)


def densenet_torchvision() -> nn.Module:
    """Return a DenseNet with the batch norms that torchvision's have."""
    return DenseNet([1, 1, 1, 1], {})


def vgg() -> nn.Module:
    """Return torchvision's VGG, with two stages."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2, 2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2, 2),
    )


class PreactBlock(nn.Module):
    """A block of ResNet V2 as keras.applications has it: the stride is in the 3 x 3 convolution."""

    def __init__(self, width: int, filters: int, stride: int, shortcut: bool) -> None:
        super().__init__()
        self.stride, out = stride, 4 * filters
        self.preact = nn.BatchNorm2d(width, **NORM)
        self.shortcut = nn.Conv2d(width, out, 1, stride) if shortcut else None
        self.conv1, self.norm1 = nn.Conv2d(width, filters, 1, bias=False), nn.BatchNorm2d(filters, **NORM)
        self.conv2 = nn.Conv2d(filters, filters, 3, stride, 1, bias=False)
        self.norm2, self.conv3 = nn.BatchNorm2d(filters, **NORM), nn.Conv2d(filters, out, 1)

    def forward(self, x):
        preact = F.relu(self.preact(x))
        short = self.shortcut(preact) if self.shortcut else F.max_pool2d(x, 1, self.stride) if self.stride > 1 else x
        new = F.relu(self.norm2(self.conv2(F.relu(self.norm1(self.conv1(preact))))))
        return short + self.conv3(new)


def resnet_v2(pool: str = "zeros") -> nn.Module:
    """Return a ResNet V2; `pool`: what its max pool pads with, "zeros" as Keras's or "nothing" as torch's."""
    blocks = [PreactBlock(64, 8, 1, True), PreactBlock(32, 8, 2, False)]
    blocks += [PreactBlock(32, 16, 1, True), PreactBlock(64, 16, 1, False)]
    padded = [nn.ZeroPad2d(1), nn.MaxPool2d(3, 2)] if pool == "zeros" else [nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), *padded, *blocks, nn.BatchNorm2d(64, **NORM), nn.ReLU())


def resnet_v2_pool() -> nn.Module:
    return resnet_v2("nothing")
