"""A sequence-to-sequence transformer (Vaswani et al. 2017), built as torch.nn.Transformer is.

Shapes: S source words, T target words, N sequences, V words in the vocabulary, d = d_model. Batch-first, as is Keras's
custom. Like torch.nn.Transformer by default: post-norm, ReLU, and a final norm after the encoder and after the decoder.
"""

import functools
import math
from collections.abc import Iterator

import keras
import tensorflow as tf

from keras_impl.models.block import Block, Tensors


@keras.saving.register_keras_serializable("parity")
class Transformer(keras.Model):
    """An encoder-decoder transformer from token ids to logits.

    Inputs: ids (N, S) and (N, T); output: logits (N, T, V). Source and target share one embedding, and there is no
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
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.config = {
            "vocabulary": vocabulary,
            "d_model": d_model,
            "heads": heads,
            "encoder_layers": encoder_layers,
            "decoder_layers": decoder_layers,
            "feed_forward": feed_forward,
            "dropout": dropout,
            "causal": causal,
        }
        self.embedding = keras.layers.Embedding(vocabulary, d_model, name="embedding")
        self.transformer = EncoderDecoder(
            Encoder([EncoderLayer(d_model, heads, feed_forward, dropout) for _ in range(encoder_layers)]),
            Decoder([DecoderLayer(d_model, heads, feed_forward, dropout) for _ in range(decoder_layers)]),
            causal,
        )
        self.output_layer = keras.layers.Dense(vocabulary, name="output")

    def build(self, input_shape: tuple) -> None:
        source_shape, target_shape = ((*shape, self.embedding.output_dim) for shape in input_shape)
        self.embedding.build()
        self.transformer.build(source_shape, target_shape)
        self.output_layer.build(target_shape)

    def call(self, inputs: tuple[tf.Tensor, tf.Tensor], training: bool = False) -> tf.Tensor:
        source, target = inputs
        decoded = self.transformer(self.embedding(source), self.embedding(target), training=training)
        return self.output_layer(decoded)

    def blocks(self) -> list[Block]:
        """Return one block per encoder layer and per decoder layer.

        The embedding and the encoder's final norm belong to the first and the last encoder block, the decoder's final
        norm and the output layer to the last decoder block.
        """
        return [*self._encoder_blocks(), *self._decoder_blocks()]

    def _encoder_blocks(self) -> Iterator[Block]:
        """Yield the blocks from (source, target) ids to the encoder's output and the embedded target."""
        encoder = self.transformer.encoder
        final = len(encoder.blocks) - 1

        def forward(i: int, x: tf.Tensor, target: tf.Tensor, training: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
            if i == 0:
                x, target = self.embedding(x), self.embedding(target)
            x = encoder.blocks[i](x, training=training)
            return (encoder.norm(x) if i == final else x), target

        for i, layer in enumerate(encoder.blocks):
            first = [self.embedding] if i == 0 else []
            last = [encoder.norm] if i == final else []
            yield Block([*first, layer, *last], functools.partial(forward, i))

    def _decoder_blocks(self) -> Iterator[Block]:
        """Yield the blocks from (encoder's output, embedded target) to the logits."""
        decoder = self.transformer.decoder
        final = len(decoder.blocks) - 1

        def forward(i: int, memory: tf.Tensor, x: tf.Tensor, training: bool = False) -> Tensors:
            x = decoder.blocks[i](x, memory, attention_mask=self.transformer.mask(x), training=training)
            return self.output_layer(decoder.norm(x)) if i == final else (memory, x)

        for i, layer in enumerate(decoder.blocks):
            last = [decoder.norm, self.output_layer] if i == final else []
            yield Block([layer, *last], functools.partial(forward, i))

    def get_config(self) -> dict:
        return {**super().get_config(), **self.config}


class EncoderDecoder(keras.layers.Layer):
    """The counterpart of torch.nn.Transformer. Inputs: (N, S, d) and (N, T, d); output: (N, T, d)."""

    def __init__(self, encoder: "Encoder", decoder: "Decoder", causal: bool):
        super().__init__(name="transformer")
        self.encoder, self.decoder, self.causal = encoder, decoder, causal

    def build(self, source_shape: tuple, target_shape: tuple) -> None:
        self.encoder.build(source_shape)
        self.decoder.build(target_shape, source_shape)

    def call(self, source: tf.Tensor, target: tf.Tensor, training: bool = False) -> tf.Tensor:
        memory = self.encoder(source, training=training)
        return self.decoder(target, memory, attention_mask=self.mask(target), training=training)

    def mask(self, target: tf.Tensor) -> tf.Tensor | None:
        """Return the mask that is added to the scores, (T, T): -inf at later words, else 0; None if not causal."""
        return _causal_mask(tf.shape(target)[1], target.dtype) if self.causal else None


class Encoder(keras.layers.Layer):
    """The encoder's layers and its final norm. Input and output: (N, S, d)."""

    def __init__(self, blocks: list["EncoderLayer"]):
        super().__init__(name="encoder")
        self.blocks = _numbered(blocks)
        self.norm = _norm("norm")

    def build(self, x_shape: tuple) -> None:
        for layer in (*self.blocks, self.norm):
            layer.build(x_shape)

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        for block in self.blocks:
            x = block(x, training=training)
        return self.norm(x)


class Decoder(keras.layers.Layer):
    """The decoder's layers and its final norm. Inputs: (N, T, d) and the encoder's output; output: (N, T, d)."""

    def __init__(self, blocks: list["DecoderLayer"]):
        super().__init__(name="decoder")
        self.blocks = _numbered(blocks)
        self.norm = _norm("norm")

    def build(self, x_shape: tuple, memory_shape: tuple) -> None:
        for block in self.blocks:
            block.build(x_shape, memory_shape)
        self.norm.build(x_shape)

    def call(
        self, x: tf.Tensor, memory: tf.Tensor, attention_mask: tf.Tensor | None, training: bool = False
    ) -> tf.Tensor:
        for block in self.blocks:
            x = block(x, memory, attention_mask=attention_mask, training=training)
        return self.norm(x)


class EncoderLayer(keras.layers.Layer):
    """Self-attention and feed-forward, each followed by dropout, residual connection and norm."""

    def __init__(self, d_model: int, heads: int, feed_forward: int, dropout: float):
        super().__init__()
        self.self_attn = MultiheadAttention(d_model, heads, dropout, name="self_attn")
        self.linear1 = keras.layers.Dense(feed_forward, name="linear1")
        self.dropout = keras.layers.Dropout(dropout, name="dropout")
        self.linear2 = keras.layers.Dense(d_model, name="linear2")
        self.norm1, self.norm2 = _norm("norm1"), _norm("norm2")
        self.dropout1 = keras.layers.Dropout(dropout, name="dropout1")
        self.dropout2 = keras.layers.Dropout(dropout, name="dropout2")

    def build(self, x_shape: tuple) -> None:
        self.self_attn.build(x_shape, x_shape)
        self.linear1.build(x_shape)
        self.linear2.build((*x_shape[:-1], self.linear1.units))
        for norm in (self.norm1, self.norm2):
            norm.build(x_shape)

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        x = self.norm1(x + self.dropout1(self.self_attn(x, x, training=training), training=training))
        return self.norm2(x + self.dropout2(self.feed_forward(x, training), training=training))

    def feed_forward(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        return self.linear2(self.dropout(tf.nn.relu(self.linear1(x)), training=training))


class DecoderLayer(keras.layers.Layer):
    """Attention to itself and to the encoder's output, and feed-forward; after each dropout, residual and norm."""

    def __init__(self, d_model: int, heads: int, feed_forward: int, dropout: float):
        super().__init__()
        self.self_attn = MultiheadAttention(d_model, heads, dropout, name="self_attn")
        self.multihead_attn = MultiheadAttention(d_model, heads, dropout, name="multihead_attn")
        self.linear1 = keras.layers.Dense(feed_forward, name="linear1")
        self.dropout = keras.layers.Dropout(dropout, name="dropout")
        self.linear2 = keras.layers.Dense(d_model, name="linear2")
        self.norm1, self.norm2, self.norm3 = _norm("norm1"), _norm("norm2"), _norm("norm3")
        self.dropout1 = keras.layers.Dropout(dropout, name="dropout1")
        self.dropout2 = keras.layers.Dropout(dropout, name="dropout2")
        self.dropout3 = keras.layers.Dropout(dropout, name="dropout3")

    def build(self, x_shape: tuple, memory_shape: tuple) -> None:
        self.self_attn.build(x_shape, x_shape)
        self.multihead_attn.build(x_shape, memory_shape)
        self.linear1.build(x_shape)
        self.linear2.build((*x_shape[:-1], self.linear1.units))
        for norm in (self.norm1, self.norm2, self.norm3):
            norm.build(x_shape)

    def call(
        self, x: tf.Tensor, memory: tf.Tensor, attention_mask: tf.Tensor | None, training: bool = False
    ) -> tf.Tensor:
        x = self.norm1(
            x + self.dropout1(self.self_attn(x, x, attention_mask=attention_mask, training=training), training=training)
        )
        attended = self.multihead_attn(x, memory, training=training)
        x = self.norm2(x + self.dropout2(attended, training=training))
        return self.norm3(x + self.dropout3(self.feed_forward(x, training), training=training))

    feed_forward = EncoderLayer.feed_forward


class MultiheadAttention(keras.layers.Layer):
    """The counterpart of torch.nn.MultiheadAttention.

    Query from (N, T, d), key and value from (N, S, d); output: (N, T, d).

    keras.layers.MultiHeadAttention rounds its scale 1 / sqrt(d / heads) through float32 (keras.ops.cast of a Python
    float), which would show in a float64 run; here the scale is exact.
    """

    def __init__(self, d_model: int, heads: int, dropout: float, name: str):
        super().__init__(name=name)
        self.heads = heads
        self.scale = 1 / math.sqrt(d_model // heads)
        self.query = keras.layers.Dense(d_model, name="query")
        self.key = keras.layers.Dense(d_model, name="key")
        self.value = keras.layers.Dense(d_model, name="value")
        self.out_proj = keras.layers.Dense(d_model, name="out_proj")
        self.dropout = keras.layers.Dropout(dropout, name="dropout")

    def build(self, x_shape: tuple, memory_shape: tuple) -> None:
        for layer, shape in ((self.query, x_shape), (self.key, memory_shape), (self.value, memory_shape)):
            layer.build(shape)
        self.out_proj.build(x_shape)

    def call(
        self, x: tf.Tensor, memory: tf.Tensor, attention_mask: tf.Tensor | None = None, training: bool = False
    ) -> tf.Tensor:
        query, key, value = self._split(self.query(x)), self._split(self.key(memory)), self._split(self.value(memory))
        scores = tf.einsum("nthk,nshk->nhts", query * self.scale, key)
        weights = tf.nn.softmax(scores if attention_mask is None else scores + attention_mask)
        attended = tf.einsum("nhts,nshk->nthk", self.dropout(weights, training=training), value)
        return self.out_proj(tf.reshape(attended, tf.shape(x)))

    def _split(self, x: tf.Tensor) -> tf.Tensor:
        """Reshape (N, T, d) to (N, T, heads, d / heads)."""
        n, t, d = tf.unstack(tf.shape(x))
        return tf.reshape(x, (n, t, self.heads, d // self.heads))


def _norm(name: str) -> keras.layers.Layer:
    return keras.layers.LayerNormalization(epsilon=1e-5, name=name)  # Keras's own default is 1e-3


def _numbered(blocks: list) -> list:
    """Name the layers `layers.0`, `layers.1`, ..., as a torch.nn.ModuleList attribute `layers` would."""
    for i, block in enumerate(blocks):
        block.name = f"layers.{i}"
    return blocks


def _causal_mask(size: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Return the mask (T, T) that is added to the scores: -inf at later words, else 0."""
    is_later = tf.linalg.band_part(tf.ones((size, size), tf.bool), 0, -1)
    is_later = tf.linalg.set_diag(is_later, tf.zeros(size, tf.bool))
    return tf.where(is_later, tf.constant(-math.inf, dtype), tf.constant(0, dtype))
