"""KerasHub's models of images of the sizes of vision_torch.py: one builder each."""

import keras
from keras_hub import models as hub
from keras_hub.src.models.siglip.siglip_loss import SigLIPLoss as SigLIPLoss

SIZES = {"num_layers": 2, "num_heads": 4, "hidden_dim": 32, "patch_size": 4}
IMAGE = {"image_shape": (16, 16, 3)}


def dinov2(**kwargs) -> keras.Model:
    positions = {"intermediate_dim": 64, "position_embedding_shape": (16, 16, 3), "apply_layernorm": True}
    return hub.DINOV2Backbone(**SIZES | IMAGE | positions | kwargs)


def dinov3(**kwargs) -> keras.Model:
    biases = {"use_key_bias": False, "apply_layernorm": True}
    return hub.DINOV3Backbone(**SIZES | IMAGE | biases | {"intermediate_dim": 48, "num_register_tokens": 2} | kwargs)


def deit() -> keras.Model:
    return hub.DeiTBackbone(**SIZES | IMAGE, intermediate_dim=48, layer_norm_epsilon=1e-12)


def swin() -> keras.Model:
    sizes = {
        "image_shape": (32, 32, 3),
        "embed_dim": 16,
        "depths": [2, 1],
        "num_heads": [2, 4],
        "window_size": 4,
        "patch_size": 2,
    }
    return hub.SwinTransformerBackbone(**sizes, drop_path=0.0)


def mit() -> keras.Model:
    return hub.MiTBackbone(
        layerwise_depths=[1, 1, 1, 1],
        num_layers=4,
        layerwise_num_heads=[1, 2, 2, 4],
        layerwise_sr_ratios=[4, 2, 1, 1],
        max_drop_path_rate=0.0,
        layerwise_patch_sizes=[7, 3, 3, 3],
        layerwise_strides=[4, 2, 2, 2],
        image_shape=(64, 64, 3),
        hidden_dims=[8, 16, 24, 32],
    )


def segformer() -> keras.Model:
    backbone = hub.SegFormerBackbone(image_encoder=mit(), projection_filters=16)
    return hub.SegFormerImageSegmenter(backbone=backbone, num_classes=5)


def vit_det() -> keras.Model:
    return hub.ViTDetBackbone(
        hidden_size=32,
        num_layers=2,
        intermediate_dim=64,
        num_heads=4,
        global_attention_layer_indices=[1],
        patch_size=4,
        num_output_channels=24,
        window_size=2,
        **IMAGE,
    )


def resnet_bottleneck() -> keras.Model:
    return hub.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[7],
        stackwise_num_filters=[64, 128],
        stackwise_num_blocks=[2, 1],
        stackwise_num_strides=[1, 2],
        block_type="bottleneck_block",
        image_shape=(32, 32, 3),
    )


def clip() -> keras.Model:
    from keras_hub.src.models.clip.clip_text_encoder import CLIPTextEncoder
    from keras_hub.src.models.clip.clip_vision_encoder import CLIPVisionEncoder

    sizes = {"hidden_dim": 32, "num_layers": 2, "num_heads": 4, "intermediate_dim": 48}
    vision = CLIPVisionEncoder(**sizes, **IMAGE, patch_size=4)
    text = CLIPTextEncoder(**sizes, vocabulary_size=61, embedding_dim=32, max_sequence_length=9)
    return hub.CLIPBackbone(vision, text, projection_dim=24)


def siglip() -> keras.Model:
    from keras_hub.src.models.siglip.siglip_text_encoder import SigLIPTextEncoder
    from keras_hub.src.models.siglip.siglip_vision_encoder import SigLIPVisionEncoder

    sizes = {"hidden_dim": 32, "num_layers": 2, "num_heads": 4, "intermediate_dim": 48}
    vision = SigLIPVisionEncoder(**sizes, **IMAGE, patch_size=4)
    text = SigLIPTextEncoder(**sizes, vocabulary_size=61, embedding_dim=32, max_sequence_length=9)
    return hub.SigLIPBackbone(vision, text)
