"""A sequence-to-sequence transformer (Vaswani et al. 2017) around torch.nn.Transformer.

Shapes: S source words, T target words, N sequences, V words in the vocabulary, d = d_model. Sequence-first, as is
PyTorch's default.
"""

import functools
from collections.abc import Iterator

import torch
from torch import nn

from torch_impl.models.block import Block, Tensors


class Transformer(nn.Module):
    """An encoder-decoder transformer from token ids to logits.

    Inputs: ids (S, N) and (T, N); output: logits (T, N, V). Source and target share one embedding, and there is no
    positional encoding. With `causal`, a target word does not see the words after it.
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
        decoded = self.transformer(source, target, tgt_mask=self._mask(target), tgt_is_causal=self.causal)
        return self.output(decoded)

    def blocks(self) -> list[Block]:
        """Return one block per encoder layer and per decoder layer.

        The embedding and the encoder's final norm belong to the first and the last encoder block, the decoder's final
        norm and the output layer to the last decoder block.
        """
        return [*self._encoder_blocks(), *self._decoder_blocks()]

    def _encoder_blocks(self) -> Iterator[Block]:
        """Yield the blocks from (source, target) ids to the encoder's output and the embedded target."""
        encoder = self.transformer.encoder

        def forward(i: int, x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            if i == 0:
                x, target = self.embedding(x), self.embedding(target)
            x = encoder.layers[i](x)
            return (encoder.norm(x) if i == encoder.num_layers - 1 else x), target

        for i, layer in enumerate(encoder.layers):
            first = [self.embedding] if i == 0 else []
            last = [encoder.norm] if i == encoder.num_layers - 1 else []
            yield Block([*first, layer, *last], functools.partial(forward, i))

    def _decoder_blocks(self) -> Iterator[Block]:
        """Yield the blocks from (encoder's output, embedded target) to the logits."""
        decoder = self.transformer.decoder

        def forward(i: int, memory: torch.Tensor, x: torch.Tensor) -> Tensors:
            x = decoder.layers[i](x, memory, tgt_mask=self._mask(x), tgt_is_causal=self.causal)
            return self.output(decoder.norm(x)) if i == decoder.num_layers - 1 else (memory, x)

        for i, layer in enumerate(decoder.layers):
            last = [decoder.norm, self.output] if i == decoder.num_layers - 1 else []
            yield Block([layer, *last], functools.partial(forward, i))

    def _mask(self, target: torch.Tensor) -> torch.Tensor | None:
        """Return the mask that is added to the scores, (T, T): -inf at later words, else 0; None if not causal."""
        if not self.causal:
            return None
        return nn.Transformer.generate_square_subsequent_mask(len(target), target.device, target.dtype)
