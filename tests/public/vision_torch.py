"""Hugging Face's models of images, small and random: one builder each."""

import torch
import transformers as hf
from torch import nn

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 16,
    "patch_size": 4,
}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def dinov2(**kwargs) -> nn.Module:
    sizes = {key: SIZES[key] for key in SIZES if key != "intermediate_size"}
    return hf.Dinov2Model(hf.Dinov2Config(**sizes | NO_DROPOUT | {"mlp_ratio": 2} | kwargs))


def dinov3(**kwargs) -> nn.Module:
    return hf.DINOv3ViTModel(
        hf.DINOv3ViTConfig(**SIZES | {"num_register_tokens": 2, "pos_embed_rescale": None} | kwargs)
    )


def deit(**kwargs) -> nn.Module:
    return hf.DeiTModel(hf.DeiTConfig(**SIZES | NO_DROPOUT | kwargs), add_pooling_layer=False)


def swin() -> nn.Module:
    sizes = {
        "image_size": 32,
        "patch_size": 2,
        "embed_dim": 16,
        "depths": [2, 1],
        "num_heads": [2, 4],
        "window_size": 4,
    }
    return hf.SwinModel(hf.SwinConfig(**sizes, **NO_DROPOUT, drop_path_rate=0.0), add_pooling_layer=False)


SEGFORMER = {
    "num_encoder_blocks": 4,
    "depths": [1, 1, 1, 1],
    "sr_ratios": [4, 2, 1, 1],
    "hidden_sizes": [8, 16, 24, 32],
    "num_attention_heads": [1, 2, 2, 4],
    "mlp_ratios": [4, 4, 4, 4],
    "decoder_hidden_size": 16,
    "num_labels": 5,
    "drop_path_rate": 0.0,
    "classifier_dropout_prob": 0.0,
}


def mit() -> nn.Module:
    return hf.SegformerModel(hf.SegformerConfig(**SEGFORMER, **NO_DROPOUT))


def segformer() -> nn.Module:
    return hf.SegformerForSemanticSegmentation(hf.SegformerConfig(**SEGFORMER, **NO_DROPOUT))


def vit_det() -> nn.Module:
    sizes = {key: SIZES[key] for key in SIZES if key != "intermediate_size"}
    positions = {"pretrain_image_size": 16, "use_relative_position_embeddings": True, "window_block_indices": [0]}
    return hf.VitDetModel(hf.VitDetConfig(**sizes, **positions, mlp_ratio=2, window_size=2, drop_path_rate=0.0))


def resnet_bottleneck() -> nn.Module:
    sizes = {"embedding_size": 64, "hidden_sizes": [256, 512], "depths": [2, 1]}
    return hf.ResNetModel(hf.ResNetConfig(**sizes, layer_type="bottleneck"))


def clip() -> nn.Module:
    text = {"vocab_size": 61, "max_position_embeddings": 9, "eos_token_id": 2, "bos_token_id": 0, "pad_token_id": 1}
    sizes = {key: SIZES[key] for key in SIZES if key not in ("image_size", "patch_size")}
    return hf.CLIPModel(hf.CLIPConfig(text_config=sizes | text, vision_config=SIZES, projection_dim=24))


def siglip_loss(outputs: dict[str, torch.Tensor], target: torch.Tensor) -> torch.Tensor:
    """As SiglipModel computes it with return_loss=True: a text goes with the image of its own number."""
    scores = outputs["texts"]
    signs = 2 * torch.eye(len(scores), dtype=scores.dtype) - 1
    return -nn.functional.logsigmoid(signs * scores).sum(-1).mean()


def siglip() -> nn.Module:
    sizes = {key: SIZES[key] for key in SIZES if key not in ("image_size", "patch_size")}
    text = sizes | {"vocab_size": 61, "max_position_embeddings": 9}
    return hf.SiglipModel(hf.SiglipConfig(text_config=text, vision_config=SIZES))
