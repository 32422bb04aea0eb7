"""Hugging Face's ResNet of basic layers, small and random."""

from torch import nn
from transformers import ResNetConfig, ResNetModel


def build(widths: list[int], depths: list[int]) -> nn.Module:
    config = ResNetConfig(embedding_size=64, hidden_sizes=widths, depths=depths, layer_type="basic")
    return ResNetModel(config)
