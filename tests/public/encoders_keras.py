"""KerasHub's encoders of text of the sizes of encoders_torch.py: one builder each."""

import keras
from keras_hub import models as hub

SIZES = {"num_layers": 2, "num_heads": 4, "hidden_dim": 32, "intermediate_dim": 48, "dropout": 0.0}
TEXT = SIZES | {"vocabulary_size": 61, "max_sequence_length": 16}


def bert() -> keras.Model:
    return hub.BertBackbone(**TEXT)


def electra() -> keras.Model:
    return hub.ElectraBackbone(**SIZES, vocab_size=61, max_sequence_length=16, embedding_dim=24)


def albert() -> keras.Model:
    return hub.AlbertBackbone(**TEXT, embedding_dim=24)


def roberta() -> keras.Model:
    return hub.RobertaBackbone(**TEXT)


def xlm_roberta() -> keras.Model:
    return hub.XLMRobertaBackbone(**TEXT)


def distil_bert() -> keras.Model:
    return hub.DistilBertBackbone(**TEXT)


def deberta_v3() -> keras.Model:
    return hub.DebertaV3Backbone(**TEXT, bucket_size=8)


def f_net() -> keras.Model:
    return hub.FNetBackbone(**{key: TEXT[key] for key in TEXT if key != "num_heads"})


def esm() -> keras.Model:
    return hub.ESMBackbone(**TEXT, use_pre_layer_norm=False, layer_norm_eps=1e-12, pad_token_id=1)


def xlnet() -> keras.Model:
    return hub.XLNetBackbone(**SIZES, vocabulary_size=61)
