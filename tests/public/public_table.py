"""The public pairs: what truly differs between the two implementations of each, and how that was established.

The truth of a pair was found without this project: the weights were carried over by KerasHub's own converter
("converter") or by hand ("by hand"), both models run in float64, and the sources were read where they differ. Behind
it stands the largest difference of the outputs, relative to the largest value; KerasHub holds some of its norms and
rotary tables in float32, so that 1e-7 is none. For the rest ("source") only the sources were read. docs/public.md is
made of this table by benchmarks/public.py.
"""

from public_pair import FORWARD, GRADIENTS, TRAINING, Elsewhere, PublicPair

FORM = "KerasHub's GELU is the tanh approximation, Hugging Face's is exact"
STATISTICS = ("batch_norm.momentum", "batch_norm.running_variance")
DECAY = "Hugging Face hands TensorFlow's decay ({}) to PyTorch's momentum, where it is the weight of the new value"
MIT = "KerasHub's blocks have a norm epsilon of 1e-6 for 1e-5, and dropouts of 0.1 that no argument sets"
MIT_CAUSES = ("layer_norm.epsilon", "dropout.rate")


def unpadded(source: str) -> Elsewhere:
    """Return what differs where ids of padding occur: PyTorch's embedding has a padding_idx."""
    difference = "Hugging Face's embedding has a padding_idx, whose row gets no gradient, KerasHub's has none"
    return Elsewhere(GRADIENTS, ("embedding.padding_idx",), difference, source)


# Where padding occurs.
POSITIONS = Elsewhere(
    FORWARD,
    ("mask.missing",),
    "Hugging Face counts positions without the padding, KerasHub with it",
    "modeling_roberta.py (create_position_ids_from_input_ids)",
)


def rounded(name: str, truth: str = "source", elsewhere: Elsewhere | None = None) -> PublicPair:
    """Return a pair that differs in no more than a constant of TensorFlow's GELU, which it holds in float32."""
    difference = "TensorFlow computes GELU with a constant that is rounded to float32"
    source = "tensorflow/python/ops/nn_ops.py, gelu"
    return PublicPair(
        name, "subprecision", FORWARD, ("constant.precision",), difference, source, truth, elsewhere=elsewhere
    )


def approximate(name: str, source: str, truth: str = "source") -> PublicPair:
    """Return a pair of the exact GELU against its approximation."""
    return PublicPair(name, "diverged", FORWARD, ("gelu.form",), FORM, source, truth)


def normed(name: str, truth: str, difference: str = "", causes: tuple[str, ...] = (), source: str = "") -> PublicPair:
    """Return a pair whose batch norms keep other running statistics, with what else differs before `difference`."""
    variance = "PyTorch's running variance is unbiased, Keras's biased"
    both = f"{difference}; {variance}" if difference else variance
    causes = tuple(dict.fromkeys((*causes, "batch_norm.running_variance")))
    where = source or "keras/src/layers/normalization/batch_normalization.py"
    return PublicPair(name, "diverged", TRAINING, causes, both, where, truth)


DECODERS = [
    PublicPair("mistral", truth="converter, with weights that it can round to float16: 2e-7"),
    PublicPair(
        "mixtral",
        "diverged",
        FORWARD,
        ("rotary*",),
        "the defaults of the rotary embedding's base are 1e6 in Hugging Face and 1e4 in KerasHub; in training KerasHub "
        "adds a router loss",
        "mixtral_backbone.py:99, configuration_mixtral.py",
        "converter, which sets the base: 2e-7",
    ),
    PublicPair("qwen2", truth="converter: 2e-7"),
    PublicPair("qwen3", "diverged", FORWARD, ("*norm.epsilon",),
        "KerasHub's decoder does not hand its epsilon to the attention, whose norms of query and key keep 1e-5",
        "qwen3_decoder.py:78, qwen3_attention.py:42", "converter: 6e-5"),
    PublicPair("qwen2_moe", "diverged", TRAINING, ("loss.*",),
        "in training KerasHub adds a load balancing loss of the router, Hugging Face's model leaves it to its heads",
        "qwen_moe_decoder.py:332", "converter: 1e-7; source"),
    PublicPair("qwen3_moe", truth="converter: 2e-7"),
    rounded("gemma", "converter: 2e-7", elsewhere=unpadded("modeling_gemma.py")),
    rounded("gemma2", "converter: 2e-7", elsewhere=unpadded("modeling_gemma2.py")),
    rounded("gemma3", "converter: 4e-7", elsewhere=unpadded("modeling_gemma3.py")),
    approximate("gpt_neox", "gpt_neo_x_backbone.py:95", "by hand: 6e-5, with the exact GELU 3e-8"),
    PublicPair("opt", truth="by hand: 8e-10", elsewhere=Elsewhere(FORWARD, ("mask.missing",),
        "Hugging Face counts positions by the attention mask, KerasHub along the whole sequence", "modeling_opt.py:354",
        unnamed="the positions are the sum of a mask that is an input")),
    rounded("bloom", "by hand: 7e-9"),
    rounded("falcon", "by hand: 4e-8"),
    PublicPair("phi3", truth="by hand: 2e-7", elsewhere=unpadded("modeling_phi3.py:346")),
    PublicPair("gpt_oss", "diverged", FORWARD, ("*mask*",),
        "KerasHub's odd layers have the sliding window, Hugging Face's even ones; and it is one token wider",
        "gpt_oss_backbone.py:147, gpt_oss_attention.py:267, configuration_gpt_oss.py (layer_types)"),
    PublicPair("smollm3", truth="converter: 3e-7", elsewhere=unpadded("modeling_smollm3.py:348")),
    PublicPair("llama3", truth="converter, with the rotary embedding's scaling under its old name: 2e-7"),
]  # fmt: skip

ENCODERS = [
    approximate("bert", "bert_backbone.py:131", "converter: 1e-5"),
    approximate("electra", "electra_backbone.py:145", "by hand: 9e-6, with the exact GELU 4e-10"),
    rounded("albert", "converter: 3e-11", elsewhere=unpadded("modeling_albert.py:56")),
    PublicPair("f_net", "diverged", GRADIENTS, ("embedding.padding*",),
        "Hugging Face's embedding has a padding_idx (3), whose row gets no gradient, KerasHub's has none",
        "configuration_fnet.py, modeling_fnet.py (FNetEmbeddings)", "by hand (forward): 1e-7; source"),
    rounded("roberta", "converter: 5e-10", elsewhere=POSITIONS),
    rounded("xlm_roberta", "converter: 5e-10", elsewhere=POSITIONS),
    rounded("distil_bert", "converter: 5e-10", elsewhere=unpadded("modeling_distilbert.py:84")),
    rounded("deberta_v3", "by hand: 4e-9", elsewhere=Elsewhere(FORWARD, ("*.mask",),
        "Hugging Face multiplies the embeddings by the mask, KerasHub does not", "modeling_deberta_v2.py")),
    rounded("esm", "converter: 5e-9", elsewhere=Elsewhere(FORWARD, ("*mask*",),
        "KerasHub masks the queries at padding where it should mask keys; Hugging Face, given no mask, masks nothing",
        "keras_hub/src/models/esm/esm_attention.py:87",
        unnamed="the mask that one side lacks is made of ids by a function of the backbone, far from the attention")),
    PublicPair(
        "xlnet",
        "diverged",
        FORWARD,
        ("*",),
        "KerasHub reshapes its position table from (length, batch) to (batch, length) where it should transpose, which "
        "mixes the positions in batches of more than one",
        "xlnet_content_and_query_embedding.py:102",
        "source; a batch of two equal rows gives something else than one of them in KerasHub",
        unnamed="which of five equal kernels is which is decided by the models' outcome, which never agrees",
    ),
]  # fmt: skip

SEQ2SEQ = [
    rounded("bart", "converter: 5e-10", elsewhere=unpadded("modeling_bart.py:691")),
    rounded("t5", "by hand: 2e-7"),
    rounded("whisper", "by hand: 3e-9"),
]

VISION = [
    rounded("dinov2", "converter: 3e-9"),
    rounded("dinov3", "converter: 3e-9"),
    rounded("deit", "converter: 4e-9"),
    rounded("swin", "converter: 2e-9"),
    PublicPair("mit", "diverged", FORWARD, MIT_CAUSES, MIT, "mit_layers.py:93, mit_layers.py:187"),
    PublicPair("segformer", "diverged", FORWARD, (*MIT_CAUSES, "batch_norm.running_variance"), MIT,
        "mit_layers.py:93, mit_layers.py:187"),
    normed("resnet_bottleneck", "by hand: 2e-8"),
    PublicPair(
        "clip",
        "diverged",
        FORWARD,
        ("buffer.values", "layer_norm.epsilon"),
        "KerasHub leaves the position ids of its vision encoder at zeros until a checkpoint is loaded, and the epsilon "
        "of its text encoder's last norm is 1e-6 for 1e-5",
        "clip_layers.py:52, clip_text_encoder.py:85",
        "by hand: 1e-1, with both mended 1e-8",
    ),
    rounded("siglip", "by hand: 8e-9"),
]  # fmt: skip

APPLICATIONS = [
    PublicPair("convnext", "diverged", FORWARD, ("layer_norm.epsilon", "constant.precision"),
        "the last layer norm's epsilon is 1e-12 in Hugging Face and 1e-6 in Keras",
        "configuration_convnext.py, keras/src/applications/convnext.py:522", "by hand: 1e-6"),
    normed("mobilenet", "by hand: 3e-16", DECAY.format(0.9997), STATISTICS, "modeling_mobilenet_v1.py"),
    normed("mobilenet_v2", "by hand: 3e-16", DECAY.format(0.997), STATISTICS, "modeling_mobilenet_v2.py"),
    normed("efficientnet", "by hand: 3e-16", DECAY.format(0.99), STATISTICS, "configuration_efficientnet.py"),
    normed("resnet50", "by hand: 5e-8",
        "keras.applications' batch norms have an epsilon of 1.001e-5 and a momentum of 0.99",
        ("batch_norm.epsilon", *STATISTICS), "keras/src/applications/resnet.py:156"),
    normed("densenet", "by hand: 3e-9"),
    PublicPair("densenet_torchvision", "diverged", FORWARD, ("batch_norm.epsilon", *STATISTICS),
        "keras.applications' batch norms have an epsilon of 1.001e-5, a momentum of 0.99 and biased variances",
        "keras/src/applications/densenet.py:228", "by hand: 2e-8"),
    PublicPair("vgg", truth="by hand: 2e-8"),
    normed("resnet_v2", "by hand: 2e-8"),
    PublicPair(
        "resnet_v2_pool",
        "diverged",
        FORWARD,
        ("max_pool.padding*", "batch_norm.running_variance"),
        "torch's max pool pads with nothing, Keras's zero padding before it with zeros, which count: the convolution "
        "before it has no ReLU",
        "keras/src/applications/resnet.py:160",
        "by hand: 1e-2, with zeros 2e-8",
    ),
]  # fmt: skip

TUTORIALS = [
    normed("dcgan_generator", "by hand: 4e-16"),
    normed("dcgan_discriminator", "by hand: 1e-9"),
    PublicPair("vae", "diverged", FORWARD, ("conv2d.padding", "conv_transpose.padding"),
        'Keras\'s "same" pads a convolution of stride 2 at the end alone, the port both ends',
        "tests/public/tutorials_torch.py, VAE", "by hand: 1.1, padded at the end 2e-8"),
    PublicPair("vae_padded", truth="by hand: 2e-8"),
    normed("siamese_contrastive", "by hand: 3e-9"),
    PublicPair("mini_gpt"),
    PublicPair("seq2seq_attention"),
    PublicPair("unet", truth="by hand: 1e-8"),
    PublicPair("wavenet_gated", truth="by hand: 1e-8"),
    PublicPair("pointnet", truth="by hand: 6e-9"),
    PublicPair("super_resolution", truth="by hand: 3e-8"),
    rounded("mlp_mixer", "by hand: 1e-8"),
]  # fmt: skip

PAIRS = [*DECODERS, *ENCODERS, *SEQ2SEQ, *VISION, *APPLICATIONS, *TUTORIALS]
