"""Attention whose dropout also drops in eval mode (https://github.com/huggingface/transformers/pull/33844).

M2M100's flash attention passed its rate on as it was, where nn.Dropout would have looked at `training` itself.
"""

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    def __init__(self, always):
        super().__init__()
        self.packed, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.dropout, self.always = 0.1, always

    def forward(self, x):
        query, key, value = self.packed(x).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
        rate = self.dropout if self.training or self.always else 0.0
        mixed = functional.scaled_dot_product_attention(query, key, value, dropout_p=rate)  # fault
        return self.out(mixed.transpose(1, 2).flatten(2))


class Encoder(nn.Module):
    def __init__(self, always=False):
        super().__init__()
        self.attention, self.norm = Attention(always), nn.LayerNorm(16)

    def forward(self, x):
        return self.norm(x + self.attention(x))


def build():
    return Encoder(always=True).cuda()


def build_right():
    return Encoder().cuda()


def step(model, inputs):
    model.eval()
    with torch.no_grad():
        model(inputs["x"].cuda())
