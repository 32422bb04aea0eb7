"""Compare the names of modules by the words that they are made of, and by words that mean the same part."""

import functools
import itertools
import re
from collections.abc import Iterable

WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
# Words that tell equal-shaped siblings apart, by the part that they mean.
PARTS = {
    "q": "query", "query": "query", "queries": "query", "wq": "query",
    "k": "key", "key": "key", "keys": "key", "wk": "key",
    "v": "value", "val": "value", "value": "value", "values": "value", "wv": "value",
    "o": "out", "out": "out", "output": "out", "wo": "out",
    "gate": "gate", "up": "up", "intermediate": "up", "inter": "up", "down": "down",
    "forward": "forward", "fwd": "forward", "backward": "backward", "bwd": "backward", "reverse": "backward",
    "encoder": "encoder", "enc": "encoder", "decoder": "decoder", "dec": "decoder",
    "shortcut": "shortcut", "downsample": "shortcut", "skip": "shortcut", "residual": "shortcut",
    "cross": "cross", "left": "left", "right": "right", "mean": "mean", "means": "mean", "mu": "mean", "mus": "mean",
    "var": "var", "logvar": "var", "sigma": "var", "sigmas": "var", "std": "var",
    "actor": "actor", "policy": "actor", "critic": "critic", "in": "in", "input": "in", "hidden": "hidden",
}  # fmt: skip
SAME = {
    "attn": "attention", "mha": "attention", "att": "attention", "multihead": "attention", "self": "self",
    "emb": "embedding", "embed": "embedding", "embeddings": "embedding", "wte": "token", "word": "token",
    "tok": "token", "wpe": "position", "pos": "position", "positions": "position", "type": "segment",
    "segments": "segment", "ff": "feedforward", "ffn": "feedforward", "mlp": "feedforward",
    "cls": "class", "classifier": "head", "logits": "head",
}  # fmt: skip
# Parts that hold other modules; a module within one of them is no counterpart of a module within another.
HOLDERS = {
    "encoder", "decoder", "left", "right", "actor", "critic", "generator", "discriminator", "teacher", "student",
    "online", "vision", "text", "image", "audio", "forward", "backward",
}  # fmt: skip
# Words that say nothing about the part that a module plays.
EMPTY = {
    "weight", "kernel", "bias", "gamma", "beta", "scale", "proj", "projection", "dense", "linear", "layer", "layers",
    "conv", "conv1d", "conv2d", "d", "norm", "ln", "bn", "layernorm", "batch", "normalization", "fc", "block",
    "blocks", "module", "model", "c", "w", "b", "h",
}  # fmt: skip


@functools.cache
def words(path: str) -> tuple[str, ...]:
    """Return the words of a path in lower case, synonyms in one form."""
    words_found = (word.lower() for word in WORD.findall(path))
    return tuple(PARTS.get(word) or SAME.get(word, word) for word in words_found)


@functools.cache
def _plain(path: str) -> frozenset[str]:
    return frozenset(word for word in words(path) if not word.isdigit())


def link_evidence(torch_names: tuple[str, str], keras_names: tuple[str, str]) -> int:
    """Return what names say of two links, each from the torch name to the Keras name at the same position.

    2: both links connect names that share a word which the other end lacks, or all their numbers. -2: the same holds
    for the links with their ends exchanged. Between these the names are no evidence.
    """
    torch_words, keras_words = (
        (_plain(first) - _plain(second), _plain(second) - _plain(first)) for first, second in (torch_names, keras_names)
    )
    own = bool(torch_words[0] & keras_words[0]) + bool(torch_words[1] & keras_words[1])
    crossed = bool(torch_words[0] & keras_words[1]) + bool(torch_words[1] & keras_words[0])
    counts = tuple(map(numbers, torch_names)), tuple(map(numbers, keras_names))
    # One side may count from 0 and the other from 1, so that a single number is no evidence.
    if counts[0][0] != counts[0][1]:
        own, crossed = own + 2 * (counts[0] == counts[1]), crossed + 2 * (counts[0] == counts[1][::-1])
    return max(-2, min(2, own - crossed))


class Vocabulary:
    """The words by which the names of both sides tell modules apart.

    Two words that both sides use, and that no name of either side has together (text and vision, generator and critic),
    exclude each other: a module within the one is no counterpart of a module within the other.
    """

    def __init__(self, torch: Iterable[str], keras: Iterable[str]) -> None:
        sides = [{telling_words(name) for name in names} for names in (torch, keras)]
        used = [frozenset(itertools.chain(*words)) for words in sides]
        self.shared = used[0] & used[1]
        together = (itertools.combinations(sorted(words & self.shared), 2) for words in sides[0] | sides[1])
        self.together = set(itertools.chain(*together))

    def excludes(self, torch: frozenset[str], keras: frozenset[str]) -> bool:
        """Return whether the words of two names say that they are no counterparts."""
        own, other = (torch - keras) & self.shared, (keras - torch) & self.shared
        return any((min(pair), max(pair)) not in self.together for pair in itertools.product(own, other))


@functools.cache
def telling_words(path: str) -> frozenset[str]:
    """Return all words of a path, without numbers and words that say nothing."""
    return frozenset(word for word in words(path) if word not in EMPTY and not word.isdigit())


def parent(path: str) -> str:
    """Return the path of the module around a module of either side; "" around the outermost."""
    return re.sub(r"[./]?[^./]*$", "", path)


def without_numbers(path: str) -> str:
    """Replace the numbers in a path, so that corresponding modules of equal layers become equal."""
    return re.sub(r"\d+", "#", path)


@functools.cache
def part(path: str) -> str:
    """Return the part that a module's own name means, by its last word of known meaning; "" if it has none."""
    own = re.split(r"[./]", path)[-1]
    return next((PARTS[word] for word in reversed([word.lower() for word in WORD.findall(own)]) if word in PARTS), "")


@functools.cache
def holders(path: str) -> frozenset[str]:
    """Return the parts (encoder, left, ...) that a module is within."""
    return frozenset(words(path)) & HOLDERS


@functools.cache
def similarity(first: str, second: str) -> float:
    """Return the share, from 0 to 1, of distinctive words that two paths have in common."""
    return overlap(distinctive_words(first), distinctive_words(second))


def overlap(first: frozenset[str], second: frozenset[str]) -> float:
    """Return the share, from 0 to 1, of words that two sets have in common."""
    return len(first & second) / max(len(first), len(second)) if first and second else 0.0


@functools.cache
def numbers(path: str) -> tuple[int, ...]:
    """Return all numbers in a path, in order."""
    return tuple(int(word) for word in re.findall(r"\d+", path))


@functools.cache
def distinctive_words(path: str) -> frozenset[str]:
    """Return the words of a path's last two names, without numbers and words that say nothing."""
    return telling_words("/".join(re.split(r"[./]", path)[-2:]))


def distinctive_parts(labels: list[str]) -> list[str]:
    """Return the part (query, gate, ...) that each label names, or "", by words that not all labels share."""
    words_of_labels = [words(label) for label in labels]
    shared = set(words_of_labels[0]).intersection(*words_of_labels[1:])
    parts = set(PARTS.values()) - shared
    return [next((word for word in reversed(own) if word in parts), "") for own in words_of_labels]
