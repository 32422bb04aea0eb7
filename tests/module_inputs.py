"""What the modules of a few cases are given, which both sides have to record in the same way.

By key of a module's input: the key that has the same tensor already, or None where it is written.
"""

import itertools
from typing import NamedTuple

from parity.trace import keys
from parity.trace.manifest import Trace
from parity.trace.recorder import FORWARD


class Inputs(NamedTuple):
    """A small case of which the inputs are known. `kinds`: of its modules, but for those known by their class."""

    model: str
    strategy: str
    changes: dict
    aliases: dict[str, str | None]
    kinds: dict[str, str]


LINEARS = {"linear1": "linear", "linear2": "linear"}
ENCODER, DECODER = "transformer.encoder.layers.0", "transformer.decoder.layers.0"


def _attention(name: str, query: str, memory: str) -> dict[str, str | None]:
    return {f"input/{name}": query, f"input/{name}#1": memory, f"input/{name}#2": memory}


def _feed_forward(layer: str, norm: str, dropout: str) -> dict[str, str | None]:
    return {
        f"input/{layer}.linear1": f"activation/{layer}.{norm}",
        f"input/{layer}.dropout": None,  # a ReLU that is no module
        f"input/{layer}.linear2": f"activation/{layer}.dropout",
        f"input/{layer}.{dropout}": f"activation/{layer}.linear2",
    }


def _layer(layer: str, attentions: tuple[str, ...]) -> dict[str, str]:
    numbers = range(1, len(attentions) + 2)
    return {
        **{f"{layer}.{name}": "attention" for name in attentions},
        **{f"{layer}.{name}": "linear" for name in LINEARS},
        **{f"{layer}.dropout{number}": "dropout" for number in ("", *numbers)},
        **{f"{layer}.norm{number}": "layer_norm" for number in numbers},
    }


CASES = [
    Inputs(
        "simple_block",
        "data_parallel",
        {},
        {"input/linear1": "input/input", "input/relu": "activation/linear1", "input/linear2": "activation/relu"},
        {**LINEARS, "relu": "relu"},
    ),
    Inputs("two_linear", "send_recv", {}, {"input/linear1": None, "input/linear2": None}, LINEARS),
    Inputs("simple_block", "tensor_parallel", {}, {}, LINEARS),
    Inputs(
        "residual_block",
        "single",
        {"model": {"out_channels": 4}, "data": {"batch": 4, "size": 8}},
        {
            "input/shortcut": "input/input",
            "input/conv1": "input/input",
            "input/bn1": "activation/conv1",
            "input/relu": "activation/bn1",
            "input/conv2": "activation/relu",
            "input/bn2": "activation/conv2",
            "input/shortcut.0": "input/input",
            "input/shortcut.1": "activation/shortcut.0",
            "input/relu#1": None,  # a sum
        },
        {
            **dict.fromkeys(("conv1", "conv2", "shortcut.0"), "conv2d"),
            **dict.fromkeys(("bn1", "bn2", "shortcut.1"), "batch_norm"),
            "relu": "relu",
        },
    ),
    Inputs(
        "transformer",
        "single",
        {
            "model": {
                "vocabulary": 50, "d_model": 12, "heads": 2, "feed_forward": 15, "encoder_layers": 1,
                "decoder_layers": 1, "dropout": 0.1,
            },
            "data": {"batch": 4, "length": 5},
        },
        {
            "input/embedding": "input/input",
            "input/embedding#1": "input/input#1",
            "input/transformer": "activation/embedding",
            "input/transformer.encoder": "activation/embedding",
            f"input/{ENCODER}": "activation/embedding",
            "input/transformer.decoder": "activation/embedding#1",
            f"input/{DECODER}": "activation/embedding#1",
            **_attention(f"{ENCODER}.self_attn", "activation/embedding", "activation/embedding"),
            f"input/{ENCODER}.dropout1": f"activation/{ENCODER}.self_attn",
            f"input/{ENCODER}.norm1": None,  # a sum
            **_feed_forward(ENCODER, "norm1", "dropout2"),
            f"input/{ENCODER}.norm2": None,
            "input/transformer.encoder.norm": f"activation/{ENCODER}.norm2",
            **_attention(f"{DECODER}.self_attn", "activation/embedding#1", "activation/embedding#1"),
            f"input/{DECODER}.dropout1": f"activation/{DECODER}.self_attn",
            f"input/{DECODER}.norm1": None,
            **_attention(
                f"{DECODER}.multihead_attn", f"activation/{DECODER}.norm1", "activation/transformer.encoder.norm"
            ),
            f"input/{DECODER}.dropout2": f"activation/{DECODER}.multihead_attn",
            f"input/{DECODER}.norm2": None,
            **_feed_forward(DECODER, "norm2", "dropout3"),
            f"input/{DECODER}.norm3": None,
            "input/transformer.decoder.norm": f"activation/{DECODER}.norm3",
            "input/output": "activation/transformer.decoder.norm",
        },
        {
            "embedding": "embedding",
            "output": "linear",
            **{f"transformer.{name}.norm": "layer_norm" for name in ("encoder", "decoder")},
            **_layer(ENCODER, ("self_attn",)),
            **_layer(DECODER, ("self_attn", "multihead_attn")),
        },
    ),
]  # fmt: skip


def forward(trace: Trace, replica: int) -> dict[str, str | None]:
    """Inputs and activations of the first step in execution order, each with the key that has its tensor already."""
    found: dict[str, str | None] = {}
    for rank in trace.manifest.replicas[replica]:
        file = f"high/rank-{rank}/{keys.step_file(0)}"
        aliases = trace.manifest.aliases.get(file, {})
        found |= {key: aliases.get(key) for key in trace.manifest.files[file] if keys.split(key)[0] in FORWARD}
    return found


def check(trace: Trace, known: Inputs) -> None:
    """A trace holds these inputs, a leaf's directly before what it made of it, and says these kinds."""
    for replica in range(trace.replicas):
        found = forward(trace, replica)
        inputs = {key: alias for key, alias in found.items() if key.startswith("input/")}
        assert {key: alias for key, alias in inputs.items() if _name(key) not in keys.MODEL_INPUTS} == known.aliases
        taking = {_name(key) for key in known.aliases} & known.kinds.keys()
        for before, key in itertools.pairwise(found):
            if key.startswith("activation/") and _name(key) in taking:
                assert before.startswith("input/") and _name(before) == _name(key)
    assert {name: kind for name, kind in trace.manifest.modules.items() if kind.islower()} == known.kinds


def _name(key: str) -> str:
    return keys.split(key)[1].partition("#")[0]
