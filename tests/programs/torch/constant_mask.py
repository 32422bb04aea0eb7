"""A causal mask that is made on the host in every step, and sent to the GPU."""

import torch
from torch import nn

from tests.programs.torch.usual import step as step


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x):
        length = x.shape[1]
        mask = torch.triu(torch.full((length, length), float("-inf")), diagonal=1).to(x.device)  # fault
        out, _ = self.attention(x, x, x, attn_mask=mask, need_weights=False)
        return out


class AttentionRight(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.register_buffer("mask", torch.triu(torch.full((32, 32), float("-inf")), diagonal=1))

    def forward(self, x):
        length = x.shape[1]
        out, _ = self.attention(x, x, x, attn_mask=self.mask[:length, :length], need_weights=False)
        return out


def on_gpu(model):
    model.to("cuda:0")
    model.optimizer = torch.optim.Adam(model.parameters())
    return model


def build():
    return on_gpu(Attention())  # wrong
    # right: return on_gpu(AttentionRight())
