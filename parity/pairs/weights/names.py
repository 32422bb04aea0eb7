"""How alike the names of modules are: the words that they are made of, and those that mean the same part."""

import functools
import re

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
    "cross": "cross", "left": "left", "right": "right", "mean": "mean", "mu": "mean", "var": "var", "logvar": "var",
    "actor": "actor", "policy": "actor", "critic": "critic", "in": "in", "input": "in", "hidden": "hidden",
}  # fmt: skip
SAME = {
    "attn": "attention", "mha": "attention", "att": "attention", "multihead": "attention", "self": "self",
    "emb": "embedding", "embed": "embedding", "embeddings": "embedding", "wte": "token", "word": "token",
    "tok": "token", "wpe": "position", "pos": "position", "positions": "position", "type": "segment",
    "segments": "segment", "ff": "feedforward", "ffn": "feedforward", "mlp": "feedforward",
    "cls": "class", "classifier": "head", "logits": "head",
}  # fmt: skip
# Parts that hold others; what two such parts hold is not mixed up.
HOLDERS = {
    "encoder", "decoder", "left", "right", "actor", "critic", "generator", "discriminator", "teacher", "student",
    "online", "vision", "text", "image", "audio", "forward", "backward",
}  # fmt: skip
# Words that say nothing about the place of a module.
EMPTY = {
    "weight", "kernel", "bias", "gamma", "beta", "scale", "proj", "projection", "dense", "linear", "layer", "layers",
    "conv", "conv1d", "conv2d", "d", "norm", "ln", "bn", "layernorm", "batch", "normalization", "fc", "block",
    "blocks", "module", "model", "c", "w", "b", "h",
}  # fmt: skip


@functools.cache
def words(path: str) -> tuple[str, ...]:
    """In lower case, those of a name in one form."""
    found = (word.lower() for word in WORD.findall(path))
    return tuple(PARTS.get(word) or SAME.get(word, word) for word in found)


@functools.cache
def _plain(path: str) -> frozenset[str]:
    return frozenset(word for word in words(path) if not word.isdigit())


def says(here: tuple[str, str], there: tuple[str, str]) -> int:
    """What names say of two links, here[0] to there[0] and here[1] to there[1], by what tells their ends apart.

    2: both links have a word in common that the other end lacks, or all their numbers; -2: the links with their ends
    exchanged have; between these: it is no evidence.
    """
    ours, theirs = ((_plain(one) - _plain(other), _plain(other) - _plain(one)) for one, other in (here, there))
    own = bool(ours[0] & theirs[0]) + bool(ours[1] & theirs[1])
    crossed = bool(ours[0] & theirs[1]) + bool(ours[1] & theirs[0])
    counts = tuple(map(numbers, here)), tuple(map(numbers, there))
    if counts[0][0] != counts[0][1]:  # one side may count from 0 and the other from 1: a single number says nothing
        own, crossed = own + 2 * (counts[0] == counts[1]), crossed + 2 * (counts[0] == counts[1][::-1])
    return max(-2, min(2, own - crossed))


@functools.cache
def part(path: str) -> str:
    """What tells a module from its equal-shaped siblings, by the last such word of its own name; "" if none does."""
    own = re.split(r"[./]", path)[-1]
    return next((PARTS[word] for word in reversed([word.lower() for word in WORD.findall(own)]) if word in PARTS), "")


@functools.cache
def holders(path: str) -> frozenset[str]:
    """The parts that a module is within."""
    return frozenset(words(path)) & HOLDERS


@functools.cache
def alike(one: str, other: str) -> float:
    """From 0 to 1: the share of telling words that both paths have."""
    return shared(telling(one), telling(other))


def shared(one: frozenset[str], other: frozenset[str]) -> float:
    """The share of words that both have."""
    return len(one & other) / max(len(one), len(other)) if one and other else 0.0


@functools.cache
def numbers(path: str) -> tuple[int, ...]:
    """All of a path, in order."""
    return tuple(int(word) for word in re.findall(r"\d+", path))


@functools.cache
def telling(path: str) -> frozenset[str]:
    """The words of a path's last two names, without numbers and what says nothing."""
    last = "/".join(re.split(r"[./]", path)[-2:])
    return frozenset(word for word in words(last) if word not in EMPTY and not word.isdigit())
