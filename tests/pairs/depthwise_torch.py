"""A depthwise convolution with two filters per channel, and the separable block of mobile networks."""

from collections import OrderedDict

from torch import nn


def build() -> nn.Module:
    return nn.Sequential(
        OrderedDict(
            depthwise=nn.Conv2d(4, 8, 3, padding=1, groups=4),
            act1=nn.ReLU6(),
            expand=nn.Conv2d(8, 10, 1),
            act2=nn.ReLU6(),
            spatial=nn.Conv2d(10, 10, 5, padding=2, groups=10, bias=False),
            pointwise=nn.Conv2d(10, 6, 1),
        )
    )
