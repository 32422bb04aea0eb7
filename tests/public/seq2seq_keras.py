"""KerasHub's encoder-decoder models of the sizes of seq2seq_torch.py: one builder each."""

import keras
from keras_hub import models as hub
from keras_hub.src.utils.keras_utils import gelu_approximate

SIZES = {
    "num_layers": 2,
    "num_heads": 4,
    "hidden_dim": 32,
    "intermediate_dim": 48,
    "vocabulary_size": 61,
    "dropout": 0.0,
}


def bart() -> keras.Model:
    return hub.BartBackbone(**SIZES, max_sequence_length=16)


def t5() -> keras.Model:
    return hub.T5Backbone(**SIZES, key_value_dim=8, activation=gelu_approximate)


def whisper() -> keras.Model:
    return hub.WhisperBackbone(**SIZES, num_mels=10, max_encoder_sequence_length=16, max_decoder_sequence_length=12)
