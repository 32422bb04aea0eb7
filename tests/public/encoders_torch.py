"""Hugging Face's encoders of text, small and random: one builder each."""

import transformers as hf
from torch import nn

SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 16,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def bert(**kwargs) -> nn.Module:
    return hf.BertModel(hf.BertConfig(**SIZES | kwargs))


def electra(**kwargs) -> nn.Module:
    return hf.ElectraModel(hf.ElectraConfig(**SIZES | {"embedding_size": 24} | kwargs))


def albert(**kwargs) -> nn.Module:
    return hf.AlbertModel(hf.AlbertConfig(**SIZES | {"embedding_size": 24} | kwargs))


def typeless(model: nn.Module) -> nn.Module:
    """Return the model with its one token type at zero, as in the published checkpoints, and not trained."""
    weight = model.embeddings.token_type_embeddings.weight
    weight.data.zero_()
    weight.requires_grad_(False)
    return model


def roberta(**kwargs) -> nn.Module:
    sizes = SIZES | {
        "max_position_embeddings": 18,
        "type_vocab_size": 1,
        "pad_token_id": 1,
        "layer_norm_eps": 1e-5,
    }  # positions begin at 2
    return typeless(hf.RobertaModel(hf.RobertaConfig(**sizes | kwargs), add_pooling_layer=False))


def xlm_roberta(**kwargs) -> nn.Module:
    sizes = SIZES | {"max_position_embeddings": 18, "type_vocab_size": 1, "pad_token_id": 1, "layer_norm_eps": 1e-5}
    return typeless(hf.XLMRobertaModel(hf.XLMRobertaConfig(**sizes | kwargs), add_pooling_layer=False))


def distil_bert() -> nn.Module:
    sizes = {"vocab_size": 61, "dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 16}
    return hf.DistilBertModel(hf.DistilBertConfig(**sizes, dropout=0.0, attention_dropout=0.0))


def deberta_v3() -> nn.Module:
    """Return DeBERTa V2's class with the settings of the published V3 checkpoints."""
    v3 = {
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
    }
    v3 |= {"position_buckets": 8, "position_biased_input": False, "type_vocab_size": 0, "layer_norm_eps": 1e-7}
    return hf.DebertaV2Model(hf.DebertaV2Config(**SIZES, **v3))


def f_net(**kwargs) -> nn.Module:
    sizes = {
        "vocab_size": 61,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "max_position_embeddings": 16,
    }
    return hf.FNetModel(hf.FNetConfig(**sizes, hidden_dropout_prob=0.0, **kwargs))


def esm() -> nn.Module:
    sizes = SIZES | {"position_embedding_type": "rotary", "emb_layer_norm_before": False, "token_dropout": False}
    return hf.EsmModel(hf.EsmConfig(**sizes, pad_token_id=1, mask_token_id=2), add_pooling_layer=False)


def xlnet() -> nn.Module:
    return hf.XLNetModel(hf.XLNetConfig(vocab_size=61, d_model=32, n_layer=2, n_head=4, d_inner=48, dropout=0.0))
