"""Models of keras.applications, as small as their functions allow."""

import keras
from keras import applications
from keras.src.applications import convnext as convnexts
from keras.src.applications import densenet as densenets
from keras.src.applications import efficientnet as efficientnets
from keras.src.applications import resnet as resnets

IMAGE = {"include_top": False, "weights": None, "input_shape": (32, 32, 3)}


def convnext() -> keras.Model:
    sizes = {"depths": [1, 2, 1, 1], "projection_dims": [16, 24, 32, 40], "layer_scale_init_value": 0.1}
    return convnexts.ConvNeXt(**sizes, **IMAGE, include_preprocessing=False, pooling="avg")


def mobilenet() -> keras.Model:
    return applications.MobileNet(alpha=0.25, **IMAGE)


def mobilenet_v2() -> keras.Model:
    return applications.MobileNetV2(alpha=0.35, **IMAGE)


def efficientnet() -> keras.Model:
    same = {"id_skip": True, "se_ratio": 0.25}
    first = {"kernel_size": 3, "repeats": 1, "filters_in": 32, "filters_out": 8, "expand_ratio": 1, "strides": 1}
    second = {"kernel_size": 5, "repeats": 2, "filters_in": 8, "filters_out": 16, "expand_ratio": 4, "strides": 2}
    sizes = {"default_size": 32, "drop_connect_rate": 0.0, "blocks_args": [first | same, second | same]}
    return efficientnets.EfficientNet(1.0, 1.0, **sizes, **IMAGE)


def resnet50() -> keras.Model:
    def stack(x):
        x = resnets.stack_residual_blocks_v1(x, 8, 1, stride1=1, name="conv2")
        return resnets.stack_residual_blocks_v1(x, 16, 2, name="conv3")

    return resnets.ResNet(stack, False, True, **IMAGE)


def resnet_v2() -> keras.Model:
    def stack(x):
        x = resnets.stack_residual_blocks_v2(x, 8, 2, name="conv2")
        return resnets.stack_residual_blocks_v2(x, 16, 2, stride1=1, name="conv3")

    return resnets.ResNet(stack, True, True, **IMAGE)


def resnet_v2_pool() -> keras.Model:
    return resnet_v2()


def densenet() -> keras.Model:
    return densenets.DenseNet([1, 1, 1, 1], **IMAGE)


def densenet_torchvision() -> keras.Model:
    return densenets.DenseNet([1, 1, 1, 1], **IMAGE)


def vgg() -> keras.Model:
    from keras_hub.models import VGGBackbone

    return VGGBackbone(stackwise_num_repeats=[2, 1], stackwise_num_filters=[16, 32], image_shape=(32, 32, 3))
