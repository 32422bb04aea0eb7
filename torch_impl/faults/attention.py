"""Faults of attention."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from torch_impl.faults.mutate import Patches, constant, replaced
from torch_impl.models.transformer import Transformer

Attention = Callable[..., torch.Tensor]


def _key_dim_of_all_heads(attention: Attention) -> Attention:
    """Scale by 1 / sqrt(d) instead of 1 / sqrt(d / heads)."""

    def changed(query: torch.Tensor, *args: Any) -> torch.Tensor:
        _, heads, _, key_dim = query.shape
        return attention(query, *args, scale=1 / math.sqrt(heads * key_dim))

    return changed


def _one_word_ahead(attention: Attention) -> Attention:
    """Let every word see the next one too."""

    def changed(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
        mask: torch.Tensor | None = None, dropout: float = 0.0, is_causal: bool = False,
    ) -> torch.Tensor:  # fmt: skip
        if is_causal:
            mask = torch.ones(query.size(-2), key.size(-2), dtype=torch.bool).tril(1)
        return attention(query, key, value, mask, dropout)

    return changed


FAULTS: dict[str, Patches] = {
    "attention.key_dim": replaced(functional, "scaled_dot_product_attention", _key_dim_of_all_heads),
    "attention.batch_first": constant(nn.Transformer, "batch_first", True),
    "attention.mask": constant(Transformer, "causal", False),
    "attention.mask_offset": replaced(functional, "scaled_dot_product_attention", _one_word_ahead),
}
