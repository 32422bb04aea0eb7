"""A sequence-to-sequence transformer (Vaswani et al. 2017) around torch.nn.Transformer.

Shapes: S source words, T target words, N sequences, V words in the vocabulary. Sequence-first.
"""

import torch
from torch import nn


class Transformer(nn.Module):
    """Inputs: ids (S, N) and (T, N); output: logits (T, N, V). One embedding serves both.

    `causal` keeps each target word from seeing the words behind it.
    """

    def __init__(
        self,
        vocabulary: int,
        d_model: int,
        heads: int,
        encoder_layers: int,
        decoder_layers: int,
        feed_forward: int,
        dropout: float,
        causal: bool,
    ):
        super().__init__()
        self.causal = causal
        self.embedding = nn.Embedding(vocabulary, d_model)
        self.transformer = nn.Transformer(d_model, heads, encoder_layers, decoder_layers, feed_forward, dropout)
        self.output = nn.Linear(d_model, vocabulary)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        source, target = self.embedding(source), self.embedding(target)
        mask = None
        if self.causal:
            mask = nn.Transformer.generate_square_subsequent_mask(len(target), target.device, target.dtype)
        return self.output(self.transformer(source, target, tgt_mask=mask, tgt_is_causal=self.causal))
