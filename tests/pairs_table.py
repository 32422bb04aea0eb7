"""The pairs of tests/pairs/, what is to be said of each, and the faults that their ports can be given.

Each pair was found to be the same computation by hand: torch's weights carried over by a map written for it, the
outputs, losses and trained weights equal in float64 to 1e-12. Larger were only: what GELU's constants, float32 in
TensorFlow, leave (1e-9), and weights under Adam whose true gradient is zero.
"""

from typing import Any, NamedTuple


class Faithful(NamedTuple):
    """A pair without a fault. `cause`: of what it is rightly said to differ in."""

    name: str
    verdict: str = "match"
    cause: str = ""


class Planted(NamedTuple):
    """A fault: arguments for one side's builder, or other functions for the training.

    `where`: globs, one of which fits the torch module that is named (a layer with its activation is two modules in
    torch); `cause`: "" where nothing in the catalogue says it.
    """

    pair: str
    arguments: dict[str, Any] = {}
    where: tuple[str, ...] = ("*",)
    cause: str = ""
    side: str = "keras"
    verdict: str = "diverged"
    train: dict[str, str] = {}


PAIRS = [
    Faithful("mlp"),
    Faithful("convnet"),
    Faithful("convmap"),
    Faithful("flatten_free"),
    Faithful("flatten_rule"),
    Faithful("pointwise"),
    Faithful("depthwise"),
    Faithful("deconv"),
    Faithful("lstm"),
    Faithful("lstm_frozen"),
    Faithful(
        "lstm_trained", verdict="diverged", cause="weights.sum"
    ),  # torch trains two biases whose sum is Keras's one
    Faithful("gru"),
    Faithful("bilstm"),
    Faithful("attention"),
    Faithful("attention_scale"),
    Faithful("packed"),
    Faithful("packed_rule"),
    Faithful("gpt", verdict="subprecision", cause="constant.precision"),  # TensorFlow's GELU
    Faithful("groupnorm"),
    Faithful("batchnorm"),
    Faithful("batchnorm_expected"),
    Faithful("tied"),
    Faithful("several"),
    Faithful("dicts"),
    Faithful("squares"),
    Faithful("nested"),
    Faithful("nested_slope", verdict="subprecision"),  # TensorFlow's leaky_relu holds its slope in float32
    Faithful("towers"),
    Faithful("stack"),
    Faithful("unet_nearest"),
    Faithful("unet_bilinear", verdict="subprecision"),  # TensorFlow's bilinear resizing is float32
    Faithful("wavenet"),
    Faithful("video"),
    Faithful("video_pools", verdict="error"),  # TensorFlow has no pools over three axes in float64 on a CPU
    Faithful("seqfirst"),
    Faithful("translator"),
    Faithful("resnet"),
    Faithful("dropout"),
    Faithful("dropped"),
    Faithful("drawn"),
    Faithful("policy"),
    Faithful("own"),
    Faithful("own_expected"),
    Faithful("llama"),
    Faithful("siamese"),
    Faithful("finetune"),
]

# Of models that others published: these need the packages transformers and keras_hub.
PUBLISHED = [
    Faithful("hub_gpt2", verdict="subprecision"),  # TensorFlow's GELU again, within a Dense
    Faithful("hub_llama"),
    Faithful("hub_vit", verdict="subprecision"),
    Faithful("hub_resnet"),
    Faithful("hub_resnet_trained"),
]

FAULTS = [
    Planted("mlp", {"activation": "elu"}, ("act*", "fc2"), cause="activation.kind"),
    Planted("convnet", {"strided": "same"}, ("4", "5")),
    Planted("convmap", {"epsilon": 1e-3}, ("norm",), "batch_norm.epsilon"),
    Planted("convmap", {"transposed": True}, ("(model)",), cause="output.layout"),
    # (Where the mapping is free to reorder the head's rows, as in flatten_free, this is no fault.)
    Planted("flatten_rule", {"permute": False}, ("10", "11", "12"), "flatten.order"),
    Planted("convnet", {"pool": "max"}, ("10", "11"), cause="pool.kind"),
    Planted("depthwise", {"capped": False}, ("act1",), cause="relu.cap"),
    # Told by torch's padding, with the port's cropping beside it: both make up for the fault.
    Planted("deconv", {"crop": [0, 1]}, ("decoder.2", "decoder.3"), cause="conv_transpose.padding"),
    Planted("lstm", {"gates": "hard_sigmoid"}, ("lstm",), cause="lstm.recurrent_activation"),
    Planted("gru", {"backwards": True}, ("rnn",), cause="gru.go_backwards"),
    Planted("gru", {"padding": 3}, ("embed.weight", "embed"), "embedding.padding_idx", side="torch"),
    Planted("bilstm", {"activation": "softsign"}, ("rnn",), cause="activation.kind"),
    Planted("attention", {"causal": True}, ("attn",), "attention.mask"),
    Planted("attention", {"epsilon": 1e-3}, ("norm",), "layer_norm.epsilon"),
    Planted("attention", {"epsilon": 1.0001e-5}, ("norm",), "layer_norm.epsilon", verdict="subprecision"),
    Planted("packed", {"scale": 1.0}, ("attn", "attn.*"), cause="attention.scale"),
    Planted("gpt", {"causal": False}, ("h.1.attn",), cause="attention.mask"),
    Planted("gpt", {"exact_first": True}, ("h.0.mlp.1",), "gelu.form"),
    Planted("gpt", {"epsilon": 1e-3}, ("h.1.ln_1",), "layer_norm.epsilon"),
    Planted("groupnorm", {"groups": 4}, ("norm2",), "group_norm.groups"),
    Planted("groupnorm", {"epsilon": 1e-3}, ("norm1",), "group_norm.epsilon"),
    Planted("batchnorm", {"momentum": 0.01}, ("bn1", "bn1.*"), cause="batch_norm.momentum"),
    Planted("batchnorm", {"epsilon": 1e-3}, ("bn1",), cause="batch_norm.epsilon"),
    Planted("batchnorm", {"own": True}, ("bn1", "bn1.*"), "batch_norm.running_variance"),
    Planted("batchnorm_expected", {"momentum": 0.01}, ("bn1", "bn1.*"), "batch_norm.momentum"),
    Planted("batchnorm_expected", {"epsilon": 1e-3}, ("bn1",), "batch_norm.epsilon"),
    Planted("batchnorm_expected", {"own": False}),  # what was expected no longer occurs
    Planted("tied", {"scale": 2.0}, cause="module.scale"),
    Planted("tied", {"tied": False}, ("embed_tokens.weight",), cause="weights.tied"),
    Planted("several", {"masked": False}, ("pool",), cause="masked_mean.masked"),
    Planted("dicts", {"years": 100}, ("age",), cause="recommender.years"),
    Planted("squares", {"residual": False}, ("gate",)),
    Planted("squares", {"gate": "hard_sigmoid"}, ("gate",), cause="activation.kind"),
    Planted("nested", {"upper_slope": 0.3}, ("0.towers.1.1",), cause="relu.slope"),
    Planted("towers", {"activation": "tanh"}, ("user.1",), cause="activation.kind"),
    Planted("stack", {"wave": 4}, ("9", "10", "11"), cause="stack.wave"),
    Planted("unet_nearest", {"joined": "x first"}, ("outc", "outc.*")),
    Planted("wavenet", {"padding": "same"}, ("layers.2.*",), cause="conv.padding"),
    Planted("video", {"activation": "relu"}, ("3", "4"), cause="activation.kind"),
    Planted("seqfirst", {"epsilon": 1e-3}, ("layers.1.norm1",), "layer_norm.epsilon"),
    Planted("pointwise", {"epsilon": 1e-3}, ("norm",), cause="instance_norm.epsilon"),
    Planted("translator", {"masked": False}, ("transformer.decoder.layers.0.multihead_attn",), "translator.masked"),
    Planted("resnet", {"epsilon": 1e-3}, ("layer1.bn2",), "batch_norm.epsilon"),
    Planted("dropout", {"second": 0.5}, ("drop",), "dropout.rate"),
    Planted("dropped", {"attention": 0.0}, ("encoder.self_attn",)),
    Planted("policy", {"rate": 0.125}, ("critic.*",), "sgd.learning_rate"),
    Planted("policy", {"stops": False}, ("critic.*",), "policy.stops"),
    Planted("drawn", {"keep": 0.5}),
    Planted("drawn", {"seed": 7}, cause="dropout.seed"),
    Planted("drawn", {"draw": "uniform"}, cause="code.function"),
    Planted("own", train={"keras_loss": "own_keras:summed_loss"}),
    Planted("own", train={"keras_optimizer": "own_keras:nesterov"}),
    Planted("llama", {"swapped": True}, ("layers.1.mlp", "layers.1.mlp.*"), cause="mlp.swapped"),
    Planted("llama", {"epsilon": 1e-6}, ("layers.0.input_layernorm",), cause="rms_norm.epsilon"),
    Planted("siamese", {"absolute": False}, ("head",), cause="siamese.absolute"),
    Planted("siamese", {"detached": True}, ("encoder", "encoder.*"), cause="gradient.stopped"),
    Planted("finetune", {"frozen": False}, cause="gradient.missing"),
]

PUBLISHED_FAULTS = [
    Planted("hub_gpt2", {"activation": "gelu"}, ("h.0.mlp.act",), side="torch", cause="gelu.form"),
    Planted("hub_llama", {"epsilon": 1e-5}, ("layers.0.input_layernorm",), cause="rms_norm.epsilon"),
    Planted(
        "hub_llama", {"wavelength": 20000}, ("layers.0.self_attn*",), cause="llama_rotary_embedding.max_wavelength"
    ),
    Planted("hub_vit", {"epsilon": 1e-12}, ("layers.0.layernorm_before",), "layer_norm.epsilon", side="torch"),
]
