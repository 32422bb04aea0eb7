"""Describe the transformer: the sizes and costs of its blocks, attention projections and feed-forward layers."""

from collections.abc import Iterator

from parity.advise import layers
from parity.advise.model import FLOAT, Block, Branch, Cost, LinearPair, Shape, Tensor
from parity.config import schema

PROJECTIONS = 3  # of an attention: query, key and value


class TransformerParts:
    """A transformer for sequences of `source` and `target` words; a sample is one pair of sequences."""

    def __init__(self, model: schema.Transformer, shapes: dict[str, Shape], source: int, target: int) -> None:
        self.model, self.shapes = model, shapes
        self.source, self.target = source, target
        self.encoder = [f"transformer.encoder.layers.{i}" for i in range(model.encoder_layers)]
        self.decoder = [f"transformer.decoder.layers.{i}" for i in range(model.decoder_layers)]

    def blocks(self) -> tuple[Block, ...]:
        """Return a block for each layer; the embedding, the last norms and the output belong to the outer ones."""
        model, width = self.model, self.model.d_model
        memory, words = self._tensor(self.source), self._tensor(self.target)
        blocks = []
        for name in self.encoder:
            cost, modules = self._layer(self.source), [name]
            if name == self.encoder[0]:
                modules.append("embedding")
            if name == self.encoder[-1]:
                cost += layers.norm(self.source * width)
                modules.append("transformer.encoder.norm")
            blocks.append(Block(self._weights(*modules), cost, (memory, words)))
        for name in self.decoder:
            cost, modules, passed = self._layer(self.target, crossed=True), [name], (memory, words)
            if name == self.decoder[-1]:
                cost += layers.norm(self.target * width) + layers.linear(width, model.vocabulary, self.target)
                modules += ["transformer.decoder.norm", "output"]
                passed = (Tensor(self.target * model.vocabulary),)  # type: ignore[assignment]
            blocks.append(Block(self._weights(*modules), cost, passed))
        return tuple(blocks)

    def branches(self) -> tuple[Branch, ...]:
        """Return the query, key and value projections of all attentions."""
        found: list[Branch] = []
        for name in self.encoder:
            found += self._projections(name, self.source, name, self.source)
        for name in self.decoder:
            found += self._projections(name, self.target, name, self.target)
            found += self._projections(f"{name}.norm1", self.target, "memory", self.source)
        return tuple(found)

    def pairs(self) -> tuple[LinearPair, ...]:
        """Return the feed-forward layers."""
        return tuple(self._pair(self.source) for _ in self.encoder) + tuple(
            self._pair(self.target) for _ in self.decoder
        )

    def _layer(self, words: int, crossed: bool = False) -> Cost:
        """Return the cost of an encoder layer or, with attention to the encoder's output, of a decoder layer."""
        elements = words * self.model.d_model
        cost = self._attention(words, words) + self._after(elements)
        if crossed:
            cost += self._attention(words, self.source) + self._after(elements)
        return cost + layers.linear(self.model.d_model, 0, words) + self._hidden(words) + self._after(elements)

    def _after(self, elements: int) -> Cost:
        """Return the cost of what follows each part of a layer: dropout, the residual sum and its norm."""
        return layers.dropout(elements, self.model.dropout) + layers.norm(elements)

    def _attention(self, queries: int, keys: int) -> Cost:
        model, width = self.model, self.model.d_model
        projected = layers.linear(width, width, queries) + layers.linear(width, width, queries)  # query and output
        of_keys = Cost(0, 2 * layers.linear(width, width, keys).flops)
        return projected + of_keys + layers.attention(queries, keys, width, model.heads, model.dropout)

    def _hidden(self, words: int) -> Cost:
        """Return the cost of what works on the hidden features of a feed-forward part."""
        model, hidden = self.model, self.model.feed_forward
        flops = layers.linear(model.d_model, hidden, words).flops
        return (
            Cost(0, flops)
            + layers.relu(words * hidden, copied=model.dropout > 0)
            + layers.dropout(words * hidden, model.dropout)
            + layers.linear(hidden, model.d_model, words)
        )

    def _pair(self, words: int) -> LinearPair:
        split = FLOAT * self.model.feed_forward * (2 * self.model.d_model + 1)
        tensor = self._tensor(words)
        return LinearPair(self.model.feed_forward, split, self._hidden(words), tensor, tensor)

    def _projections(self, query: str, queries: int, key: str, keys: int) -> Iterator[Branch]:
        width = self.model.d_model
        for number in range(PROJECTIONS):
            source, words = (key, keys) if number else (query, queries)
            cost = Cost(0, layers.linear(width, width, words).flops)
            tensor = self._tensor(words)
            yield Branch(number, FLOAT * width * (width + 1), cost, source, tensor, tensor)

    def _tensor(self, words: int) -> Tensor:
        return Tensor(words * self.model.d_model)

    def _weights(self, *modules: str) -> tuple[str, ...]:
        prefixes = tuple(f"{module}." for module in modules)
        return tuple(name for name in self.shapes if name.startswith(prefixes))
