"""KerasHub's ResNet of the same sizes."""

import keras
import keras_hub


def build(widths: list[int], depths: list[int], kernel: int = 7) -> keras.Model:
    return keras_hub.models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[kernel],
        stackwise_num_filters=widths,
        stackwise_num_blocks=depths,
        stackwise_num_strides=[1] + [2] * (len(widths) - 1),
        block_type="basic_block",
        image_shape=(32, 40, 3),
    )
