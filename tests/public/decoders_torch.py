"""Hugging Face's language models, small and random: one builder each."""

import transformers as hf
from torch import nn

SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "use_cache": False,
}
GROUPED = SIZES | {"num_key_value_heads": 2, "rms_norm_eps": 1e-6}
EAGER = {"experts_implementation": "eager"}  # the fused experts have no float64


def mistral(**kwargs) -> nn.Module:
    return hf.MistralModel(hf.MistralConfig(**GROUPED | {"head_dim": 8, "sliding_window": 4} | kwargs))


def mixtral() -> nn.Module:
    return hf.MixtralModel(
        hf.MixtralConfig(**GROUPED, **EAGER, num_local_experts=3, num_experts_per_tok=2, sliding_window=4)
    )


def qwen2() -> nn.Module:
    return hf.Qwen2Model(hf.Qwen2Config(**GROUPED))


def qwen3() -> nn.Module:
    return hf.Qwen3Model(hf.Qwen3Config(**GROUPED, head_dim=8))


def qwen2_moe() -> nn.Module:
    sizes = {
        "num_experts": 3,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "shared_expert_intermediate_size": 40,
    }
    return hf.Qwen2MoeModel(hf.Qwen2MoeConfig(**GROUPED, **EAGER, **sizes))


def qwen3_moe() -> nn.Module:
    sizes = {
        "num_experts": 3,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "norm_topk_prob": True,
        "head_dim": 8,
    }
    return hf.Qwen3MoeModel(hf.Qwen3MoeConfig(**GROUPED, **EAGER, **sizes))


def gemma() -> nn.Module:
    return hf.GemmaModel(hf.GemmaConfig(**GROUPED, head_dim=8))


def gemma2() -> nn.Module:
    return hf.Gemma2Model(hf.Gemma2Config(**GROUPED, head_dim=8, query_pre_attn_scalar=8, sliding_window=4))


def gemma3() -> nn.Module:
    sizes = {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 4}
    return hf.Gemma3TextModel(hf.Gemma3TextConfig(**GROUPED, **sizes))


def gpt_neox(**kwargs) -> nn.Module:
    return hf.GPTNeoXModel(hf.GPTNeoXConfig(**SIZES | {"hidden_dropout": 0.0, "attention_dropout": 0.0} | kwargs))


def opt() -> nn.Module:
    sizes = {key: SIZES[key] for key in SIZES if key != "intermediate_size"}
    return hf.OPTModel(hf.OPTConfig(**sizes, ffn_dim=48, word_embed_proj_dim=32, dropout=0.0, pad_token_id=1))


def bloom() -> nn.Module:
    config = hf.BloomConfig(vocab_size=61, hidden_size=32, n_layer=2, n_head=4, use_cache=False)
    return hf.BloomModel(config)


def falcon() -> nn.Module:
    sizes = {
        "vocab_size": 61,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "ffn_hidden_size": 48,
    }
    return hf.FalconModel(hf.FalconConfig(**sizes, alibi=True, multi_query=False, parallel_attn=False, bias=True))


def phi3() -> nn.Module:
    return hf.Phi3Model(hf.Phi3Config(**GROUPED, pad_token_id=0))


def gpt_oss() -> nn.Module:
    sizes = {"num_local_experts": 3, "num_experts_per_tok": 2, "head_dim": 8, "sliding_window": 4}
    return hf.GptOssModel(hf.GptOssConfig(**GROUPED, **EAGER, **sizes))


def smollm3() -> nn.Module:
    return hf.SmolLM3Model(hf.SmolLM3Config(**GROUPED, pad_token_id=0, no_rope_layers=[1, 0]))


def llama3() -> nn.Module:
    scaling = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    }
    scaling |= {"original_max_position_embeddings": 32}
    return hf.LlamaModel(hf.LlamaConfig(**GROUPED, rope_parameters=scaling))
