"""Dropout at two places."""

from collections import OrderedDict

from torch import nn


def build(rate: float = 0.25) -> nn.Module:
    return nn.Sequential(
        OrderedDict(
            input_drop=nn.Dropout(rate),
            hidden=nn.Linear(10, 20),
            act=nn.ReLU(),
            drop=nn.Dropout(rate),
            out=nn.Linear(20, 6),
        )
    )
