"""KerasHub's language models of the sizes of decoders_torch.py: one builder each."""

import keras
from keras_hub import models as hub

SIZES = {"vocabulary_size": 61, "num_layers": 2, "hidden_dim": 32, "intermediate_dim": 48}
GROUPED = SIZES | {"num_query_heads": 4, "num_key_value_heads": 2}


def mistral(**kwargs) -> keras.Model:
    return hub.MistralBackbone(**GROUPED | {"head_dim": 8, "sliding_window": 4} | kwargs)


def mixtral() -> keras.Model:
    return hub.MixtralBackbone(**GROUPED, num_experts=3, top_k=2, sliding_window=4)


def qwen2() -> keras.Model:
    return hub.QwenBackbone(**GROUPED)


def qwen3() -> keras.Model:
    return hub.Qwen3Backbone(**GROUPED, head_dim=8)


def qwen2_moe() -> keras.Model:
    sizes = {"num_experts": 3, "top_k": 2, "moe_intermediate_dim": 24, "shared_expert_intermediate_dim": 40}
    return hub.QwenMoeBackbone(**GROUPED, **sizes)


def qwen3_moe() -> keras.Model:
    sizes = {"num_experts": 3, "top_k": 2, "moe_intermediate_dim": 24, "norm_top_k_prob": True, "head_dim": 8}
    sizes["router_aux_loss_coefficient"] = 0.0
    return hub.Qwen3MoeBackbone(**GROUPED, **sizes)


def gemma() -> keras.Model:
    return hub.GemmaBackbone(**GROUPED | {"intermediate_dim": 96}, head_dim=8)


def gemma2() -> keras.Model:
    sizes = {"intermediate_dim": 96, "head_dim": 8, "sliding_window_size": 4, "use_sliding_window_attention": True}
    norms = {"use_post_ffw_norm": True, "use_post_attention_norm": True}
    caps = {"attention_logit_soft_cap": 50.0, "final_logit_soft_cap": 30.0}
    return hub.GemmaBackbone(**GROUPED | sizes, **norms, **caps)


def gemma3() -> keras.Model:
    sizes = {"head_dim": 8, "image_size": 16, "use_sliding_window_attention": True, "sliding_window_size": 4}
    norms = {"use_post_ffw_norm": True, "use_post_attention_norm": True}
    return hub.Gemma3Backbone(**GROUPED, **sizes, **norms)


def gpt_neox(**kwargs) -> keras.Model:
    return hub.GPTNeoXBackbone(**SIZES, num_heads=4, **kwargs)


def opt() -> keras.Model:
    return hub.OPTBackbone(**SIZES, num_heads=4, dropout=0.0, max_sequence_length=64)


def bloom() -> keras.Model:
    return hub.BloomBackbone(**SIZES | {"intermediate_dim": 128}, num_heads=4)


def falcon() -> keras.Model:
    return hub.FalconBackbone(**SIZES, num_attention_heads=4)


def phi3() -> keras.Model:
    return hub.Phi3Backbone(**GROUPED, max_sequence_length=64, pretraining_sequence_length=64)


def gpt_oss() -> keras.Model:
    rotary = {"rope_max_wavelength": 150000, "rope_scaling_factor": 32.0}
    return hub.GptOssBackbone(**GROUPED, **rotary, num_experts=3, top_k=2, head_dim=8, sliding_window=4)


def smollm3() -> keras.Model:
    sizes = {key: GROUPED[key] for key in GROUPED if key != "num_query_heads"}
    return hub.SmolLM3Backbone(
        **sizes,
        num_attention_heads=4,
        attention_bias=False,
        attention_dropout=0.0,
        rope_layer_enabled_list=[True, False],
        layer_types=["full_attention"] * 2,
        mlp_bias=False,
        layer_norm_epsilon=1e-6,
        max_position_embeddings=64,
        rope_theta=2000000.0,
        partial_rotary_factor=1.0,
    )


def llama3() -> keras.Model:
    scaling = {"rope_frequency_adjustment_factor": 8.0, "rope_low_freq_factor": 1.0, "rope_high_freq_factor": 4.0}
    scaling |= {"rope_max_wavelength": 500000, "rope_pretraining_sequence_length": 32, "tie_word_embeddings": True}
    return hub.Llama3Backbone(**GROUPED, **scaling)
