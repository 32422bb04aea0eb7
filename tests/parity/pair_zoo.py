"""Models of many kinds as both frameworks would tell them, and which of their weights truly belong together."""

from pair_surveys import (
    BATCH_NORM,
    MATRIX,
    NORM,
    Line,
    Model,
    Shape,
    attention,
    batch_norm,
    batch_norm_k,
    both,
    conv,
    conv_k,
    dense,
    keras,
    line,
    linear,
    norm,
    norm_k,
    torch,
)

from parity.runtime.survey import Seen


def mlp() -> Model:
    """Square everywhere; Keras counts from nothing."""
    names = {"fc1": "dense", "fc2": "dense_1", "fc3": "dense_2"}
    return Model(
        torch(*(linear(name, 8, 8) for name in names)),
        keras(*(dense(name, 8, 8) for name in names.values())),
        both(names, MATRIX),
    )


def lenet() -> Model:
    """What a flattened image is multiplied by: a port may permute the image, or the matrix."""
    here = [conv("conv1", 1, 6, 5, 5), conv("conv2", 6, 16, 5, 5), linear("fc1", 400, 120), linear("fc2", 120, 10)]
    there = [conv_k("c1", 1, 6, 5, 5), conv_k("c2", 6, 16, 5, 5), dense("f1", 400, 120), dense("f2", 120, 10)]
    shapes = {"conv1": (2, 6, 10, 10), "conv2": (2, 16, 5, 5), "fc1": (2, 120), "fc2": (2, 10)}
    outputs = [Seen(key=name, module=name, shape=shape) for name, shape in shapes.items()]
    names = {"conv1": "c1", "conv2": "c2", "fc1": "f1", "fc2": "f2"}
    return Model(torch(*here, outputs=outputs), keras(*there), both(names, MATRIX), ["fc1"])


def _blocks(order: str) -> list[tuple[str, str, str]]:
    """Convolution, then norm: (torch, Keras, kind) in an order of m (main), n (second of main) and s (shortcut)."""
    names = {"m": ("block.conv1", "conv_1"), "n": ("block.conv2", "conv_2"), "s": ("block.short.0", "conv_0")}
    norms = {"m": ("block.bn1", "bn_1"), "n": ("block.bn2", "bn_2"), "s": ("block.short.1", "bn_0")}
    names |= {letter.upper(): places for letter, places in norms.items()}
    return [(*names[letter], letter) for letter in order]


KERNELS = {"m": (8, 16, 3, 3), "n": (16, 16, 3, 3), "s": (8, 16, 1, 1)}


def residual(order_torch: str, order_keras: str, ambiguities: list[str]) -> Model:
    """Small letters are convolutions, capitals the norms behind them."""
    here = [
        conv(one, *KERNELS[kind]) if kind in KERNELS else batch_norm(one, 16) for one, _, kind in _blocks(order_torch)
    ]
    there = [
        conv_k(one, *KERNELS[kind]) if kind in KERNELS else batch_norm_k(one, 16)
        for _, one, kind in _blocks(order_keras)
    ]
    names = {one: other for one, other, kind in _blocks(order_torch) if kind in KERNELS}
    norms = {one: other for one, other, kind in _blocks(order_torch) if kind not in KERNELS}
    return Model(torch(*here), keras(*there), both(names, MATRIX) | both(norms, BATCH_NORM), ambiguities)


def convolutions() -> Model:
    """Depthwise, separable, transposed, one and three dimensions."""
    here = [
        line("deep", "conv2d", {"groups": 4}, weight=(8, 1, 3, 3), bias=(8,)),
        line("spread", "grouped_conv2d", {"groups": 8}, weight=(8, 1, 3, 3)),
        conv("mixed", 8, 6, 1, 1),
        line("up", "conv_transpose2d", weight=(6, 5, 2, 2), bias=(5,)),
        conv("line", 5, 7, 3),
        conv("room", 7, 3, 2, 2, 2),
    ]
    there = [
        line("dw", "depthwise_conv2d", kernel=(3, 3, 4, 2), bias=(8,)),
        line("sep", "separable_conv2d", depthwise_kernel=(3, 3, 8, 1), pointwise_kernel=(1, 1, 8, 6), bias=(6,)),
        line("tr", "conv_transpose2d", kernel=(2, 2, 5, 6), bias=(5,)),
        conv_k("one", 5, 7, 3),
        conv_k("three", 7, 3, 2, 2, 2),
    ]
    truth = both({"deep": "dw", "up": "tr", "line": "one", "room": "three"}, MATRIX)
    truth |= {"spread.weight": "sep/depthwise_kernel", "mixed.weight": "sep/pointwise_kernel", "mixed.bias": "sep/bias"}
    return Model(torch(*here), keras(*there), truth)


def _recurrent(gates: int, inputs: int, hidden: int, suffix: str) -> dict[str, Shape]:
    return {
        f"weight_ih_{suffix}": (gates * hidden, inputs),
        f"weight_hh_{suffix}": (gates * hidden, hidden),
        f"bias_ih_{suffix}": (gates * hidden,),
        f"bias_hh_{suffix}": (gates * hidden,),
    }


def recurrent(kind: str, gates: int) -> Model:
    """Two layers in both directions, in one module of torch's; Keras's weights are its cells'."""
    suffixes = {"l0": "l0/forward_rnn", "l0_reverse": "l0/backward_rnn"}
    suffixes |= {"l1": "l1/forward_rnn", "l1_reverse": "l1/backward_rnn"}
    weights: dict[str, Shape] = {}
    there: list[Line] = []
    truth: dict[str, str] = {}
    bias = (2, 3 * 6) if kind == "gru" else (gates * 6,)
    facts = {"reset_after": True} if kind == "gru" else {}
    for suffix, path in suffixes.items():
        inputs = 12 if "l1" in suffix else 4
        weights |= _recurrent(gates, inputs, 6, suffix)
        there.append(line(path, kind, facts))
        cell = {"kernel": (inputs, gates * 6), "recurrent_kernel": (6, gates * 6), "bias": bias}
        there.append(line(f"{path}/cell", f"{kind}_cell", **cell))
        truth |= {f"r.weight_ih_{suffix}": f"{path}/cell/kernel"}
        truth |= {f"r.weight_hh_{suffix}": f"{path}/cell/recurrent_kernel"}
        truth |= {f"r.bias_ih_{suffix}+r.bias_hh_{suffix}": f"{path}/cell/bias"}
    return Model(torch(line("r", kind, **weights)), keras(*there), truth)


def multihead() -> Model:
    """torch's packed attention, whose output projection is never called as a module."""
    packed = line("att", "attention", {"heads": 4}, in_proj_weight=(24, 8), in_proj_bias=(24,))
    here = [norm("ln", 8), packed, linear("att.out_proj", 8, 8), linear("head", 8, 8)]
    there = [norm_k("norm", 8), *attention("mha", 8, 4), dense("head", 8, 8)]
    parts = "mha/query/{0}+mha/key/{0}+mha/value/{0}"
    truth = both({"ln": "norm"}, NORM) | both({"att.out_proj": "mha/attention_output", "head": "head"}, MATRIX)
    truth |= {"att.in_proj_weight": parts.format("kernel"), "att.in_proj_bias": parts.format("bias")}
    return Model(torch(*here, called=["", "ln", "att", "head"]), keras(*there), truth)


def gpt2() -> Model:
    """Hugging Face's, of two layers, and KerasHub's."""
    here = [line("wte", "embedding", weight=(50, 8)), line("wpe", "embedding", weight=(16, 8))]
    there = [line("token_embedding", "reversible_embedding", embeddings=(50, 8))]
    there.append(line("position_embedding", "PositionEmbedding", embeddings=(16, 8)))
    truth = {"wte.weight": "token_embedding/embeddings", "wpe.weight": "position_embedding/embeddings"}
    for number in range(2):
        one, other = f"h.{number}", f"transformer_layer_{number}"
        here += [norm(f"{one}.ln_1", 8), linear(f"{one}.attn.c_attn", 8, 24, "linear_io")]
        here += [linear(f"{one}.attn.c_proj", 8, 8, "linear_io"), norm(f"{one}.ln_2", 8)]
        here += [linear(f"{one}.mlp.c_fc", 8, 32, "linear_io"), linear(f"{one}.mlp.c_proj", 32, 8, "linear_io")]
        there += [norm_k(f"{other}/self_attention_layer_norm", 8), *attention(f"{other}/self_attention", 8, 4)]
        there += [norm_k(f"{other}/feedforward_layer_norm", 8)]
        there += [dense(f"{other}/feedforward_intermediate_dense", 8, 32)]
        there += [dense(f"{other}/feedforward_output_dense", 32, 8)]
        parts = "+".join(f"{other}/self_attention/{part}" for part in ("query", "key", "value"))
        matrices = {f"{one}.attn.c_attn": parts, f"{one}.attn.c_proj": f"{other}/self_attention/attention_output"}
        matrices |= {f"{one}.mlp.c_fc": f"{other}/feedforward_intermediate_dense"}
        matrices |= {f"{one}.mlp.c_proj": f"{other}/feedforward_output_dense"}
        norms = {f"{one}.ln_1": f"{other}/self_attention_layer_norm", f"{one}.ln_2": f"{other}/feedforward_layer_norm"}
        truth |= both(matrices, MATRIX) | both(norms, NORM)
    here.append(norm("ln_f", 8))
    there.append(norm_k("layer_norm", 8))
    truth |= both({"ln_f": "layer_norm"}, NORM)
    return Model(torch(*here), keras(*there), truth, ["h.0.attn.c_attn", "h.1.attn.c_attn"])


def gated() -> Model:
    """A feed-forward block as Llama's: Keras calls what torch calls up before the gate, and value before key."""
    names = {"q_proj": "query", "k_proj": "key", "v_proj": "value"}
    gates = {"gate_proj": "feedforward_gate_dense", "up_proj": "feedforward_intermediate_dense"}
    here = [line(f"attn.{name}", "linear", weight=(8, 8)) for name in names]
    here += [line(f"mlp.{name}", "linear", weight=(12, 8)) for name in gates]
    here += [line("mlp.down_proj", "linear", weight=(8, 12)), line("norm", "LlamaRMSNorm", weight=(8,))]
    there = [line(f"attention/{name}", "linear", kernel=(8, 8)) for name in ("query", "value", "key")]
    there += [line(name, "linear", kernel=(8, 12)) for name in reversed(gates.values())]
    there += [line("feedforward_output_dense", "linear", kernel=(12, 8)), line("last", "LlamaLayerNorm", scale=(8,))]
    truth = both({f"attn.{one}": f"attention/{other}" for one, other in names.items()}, {"weight": "kernel"})
    truth |= both({f"mlp.{one}": other for one, other in gates.items()}, {"weight": "kernel"})
    truth |= {"mlp.down_proj.weight": "feedforward_output_dense/kernel", "norm.weight": "last/scale"}
    return Model(torch(*here), keras(*there), truth)


def tied_once() -> Model:
    """torch ties its head to the embedding; Keras has both."""
    here = torch(
        line("emb", "embedding", weight=(9, 4)),
        linear("body", 4, 4),
        line("head", "linear"),
        tied={"head.weight": "emb.weight"},
    )
    there = keras(
        line("embed", "embedding", embeddings=(9, 4)), dense("mid", 4, 4), line("logits", "linear", kernel=(4, 9))
    )
    return Model(here, there, {"emb.weight": "embed/embeddings+logits/kernel"} | both({"body": "mid"}, MATRIX))


def tied_twice() -> Model:
    """Both tie."""
    here = tied_once().torch
    there = keras(line("embed", "reversible_embedding", embeddings=(9, 4)), dense("mid", 4, 4))
    return Model(here, there, {"emb.weight": "embed/embeddings"} | both({"body": "mid"}, MATRIX))


def untied() -> Model:
    """A ReversibleEmbedding that holds the head's matrix too, and is called first."""
    here = torch(
        line("emb", "embedding", weight=(9, 4)), linear("body", 4, 4), line("lm_head", "linear", weight=(9, 4))
    )
    both_ways = line("embed", "reversible_embedding", embeddings=(9, 4), reverse_embeddings=(4, 9))
    truth = {"emb.weight": "embed/embeddings", "lm_head.weight": "embed/reverse_embeddings"}
    return Model(here, keras(both_ways, dense("mid", 4, 4)), truth | both({"body": "mid"}, MATRIX))


def bare() -> Model:
    """Square matrices that custom layers hold: nothing tells how they stand."""
    here = torch(line("mix", "Mixer", w1=(4, 4), w2=(4, 4), scale=(4,)), linear("out", 4, 4))
    there = keras(line("mixer", "Mixer", w1=(4, 4), w2=(4, 4), factor=(4,)), dense("out", 4, 4))
    truth = {"mix.w1": "mixer/w1", "mix.w2": "mixer/w2", "mix.scale": "mixer/factor"}
    return Model(here, there, truth | both({"out": "out"}, MATRIX), ["mix", "mix"])


def vision() -> Model:
    """A class token, positions with an axis of one, a patch projection: Keras calls the latter in another order."""
    here = torch(
        line("embeddings", "ViTEmbeddings", cls_token=(1, 1, 8), position_embeddings=(1, 5, 8), position_ids=(1, 5)),
        conv("embeddings.projection", 3, 8, 4, 4),
        norm("ln", 8),
    )
    there = keras(
        line("patching", "ViTPatching", class_token=(1, 1, 8)),
        conv_k("patching/patch_embedding", 3, 8, 4, 4),
        line("patching/position_embedding", "embedding", embeddings=(5, 8)),
        norm_k("ln", 8),
    )
    truth = {"embeddings.cls_token": "patching/class_token"} | both({"ln": "ln"}, NORM)
    truth |= {"embeddings.position_embeddings": "patching/position_embedding/embeddings"}
    return Model(here, there, truth | both({"embeddings.projection": "patching/patch_embedding"}, MATRIX))


def packed_dense() -> Model:
    """One matrix for query, key and value on torch's side, three of Keras's: it may be interleaved by head."""
    here = torch(linear("attn.qkv", 8, 24), linear("attn.proj", 8, 8))
    there = keras(*(dense(f"a/{name}", 8, 8) for name in ("to_q", "to_k", "to_v", "to_out")))
    truth = both({"attn.qkv": "a/to_q+a/to_k+a/to_v", "attn.proj": "a/to_out"}, MATRIX)
    return Model(here, there, truth, ["attn.qkv"])


def joined_dense() -> Model:
    """The other way about, with fewer heads for keys and values."""
    sizes = {"q_proj": 8, "k_proj": 4, "v_proj": 4}
    here = torch(*(linear(f"attn.{name}", 8, size) for name, size in sizes.items()), linear("attn.o_proj", 8, 8))
    there = keras(dense("attn/qkv", 8, 16), dense("attn/out", 8, 8))
    joined = {"+".join(f"attn.{name}.{role}" for name in sizes): f"attn/qkv/{other}" for role, other in MATRIX.items()}
    return Model(here, there, joined | both({"attn.o_proj": "attn/out"}, MATRIX))


def nested() -> Model:
    """Models within models, with a decoder that Keras calls first."""
    parts = {"encoder": "enc", "decoder": "dec"}
    here = [linear(f"{part}.{number}", 4, 4) for part in parts for number in range(2)]
    there = [
        dense(f"{parts[part]}/dense{'_1' * number}", 4, 4) for part in ("decoder", "encoder") for number in range(2)
    ]
    names = {f"{part}.{n}": f"{parts[part]}/dense{'_1' * n}" for part in parts for n in range(2)}
    return Model(torch(*here), keras(*there), both(names, MATRIX))


MODELS = {
    "mlp": mlp(),
    "lenet": lenet(),
    "shortcut alike": residual("mMnNsS", "mMnNsS", []),
    "shortcut before": residual("mMnNsS", "sSmMnN", ["block.bn1"]),
    "shortcut between": residual("mMnNsS", "mMnsSN", ["block.bn2"]),
    "convolutions": convolutions(),
    "lstm": recurrent("lstm", 4),
    "gru": recurrent("gru", 3),
    "rnn": recurrent("rnn", 1),
    "multihead": multihead(),
    "gpt2": gpt2(),
    "gated": gated(),
    "tied once": tied_once(),
    "tied twice": tied_twice(),
    "untied": untied(),
    "bare": bare(),
    "vision": vision(),
    "packed": packed_dense(),
    "joined": joined_dense(),
    "nested": nested(),
}
