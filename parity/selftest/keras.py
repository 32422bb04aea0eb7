"""List the faults that are planted on the Keras side (keras_impl/harness/faults), each with a case that shows it."""

import functools

from parity.selftest.fault import Fault, planted
from parity.selftest.small_cases import (
    ACCUMULATE,
    ADAM,
    ADAMW,
    ALL_REDUCE,
    AS_MANY_SAMPLES,
    BLOCK,
    BRANCHES,
    CAUSAL,
    CLASSES,
    CLIP,
    DDP,
    DDP_CLIP,
    DROPOUT,
    DROPOUT_DDP,
    MANY_WORDS,
    REGRESSION,
    RESIDUAL,
    RESIDUAL_DDP,
    SATURATED,
    SCHEDULE,
    SPECIMEN,
    STACK,
    STAGES,
    TRANSFORMER,
    TWO_STEPS,
    UNEVEN,
)

ENCODER = "transformer.encoder.layers.0"
DECODER = "transformer.decoder.layers.0"

_planted = functools.partial(planted, "keras")
_at_start = functools.partial(planted, "keras", step=None)

LAYERS = (
    _planted("layer_norm.epsilon", TRANSFORMER, "activation", f"{ENCODER}.norm1"),
    _planted("layer_norm.default_epsilon", TRANSFORMER, "activation", f"{ENCODER}.norm1", "layer_norm.epsilon"),
    _planted("group_norm.epsilon", SPECIMEN, "activation", "group_norm"),
    _planted("batch_norm.epsilon", RESIDUAL, "activation", "shortcut.1"),
    _planted("batch_norm.momentum", RESIDUAL, "buffer", "bn1.running_*"),
    _planted("batch_norm.running_variance", RESIDUAL, "buffer", "bn1.running_var"),
    _planted("batch_norm.mode", RESIDUAL, "activation", "shortcut.1"),
    _planted("batch_norm.frozen", RESIDUAL, "buffer", "bn1.running_*"),
    _planted("batch_norm.scope", RESIDUAL_DDP, "activation", "shortcut.1"),
    _at_start("linear.weight", STACK, "parameter", "layers.0.weight"),
    _planted("linear.transposed", STACK, "activation", "layers.0", "linear.weight"),
    _planted("linear.bias", BLOCK, "activation", "linear1"),
    _planted("linear.activation", STACK, "activation", "layers.0"),
    _planted("conv2d.padding", SPECIMEN, "activation", "conv"),
    _at_start("conv2d.weight", RESIDUAL, "parameter", "conv1.weight"),
    _at_start("conv2d.flipped", SPECIMEN, "parameter", "conv.weight", "conv2d.weight"),
    _at_start("conv_transpose", SPECIMEN, "parameter", "up.weight"),
    _planted("max_pool.padding", SPECIMEN, "activation", "pool"),
    _planted("flatten.order", SPECIMEN, "activation", "flatten"),
    _planted("gelu.form", SPECIMEN, "activation", "gelu"),
    _planted("softmax.axis", SPECIMEN, "activation", "softmax"),
    _planted("relu.dropped", BLOCK, "activation", "relu"),
    _planted("relu.slope", BLOCK, "activation", "relu"),
    _at_start("attention.packing", TRANSFORMER, "parameter", f"{ENCODER}.self_attn.in_proj_weight"),
    _planted("attention.key_dim", TRANSFORMER, "activation", f"{ENCODER}.self_attn"),
    _planted("attention.heads", TRANSFORMER, "activation", f"{ENCODER}.self_attn"),
    _planted("attention.batch_first", TRANSFORMER, "activation", f"{ENCODER}.self_attn"),
    _planted("attention.mask", CAUSAL, "activation", f"{DECODER}.self_attn"),
    _planted("attention.mask_offset", CAUSAL, "activation", f"{DECODER}.self_attn", "attention.mask"),
    _planted("transformer.final_norm", TRANSFORMER, "activation", "transformer.encoder.norm"),
    _planted("transformer.norm_order", TRANSFORMER, "activation", ENCODER, also="module.wiring"),
    _planted("transformer.shortcut", TRANSFORMER, "activation", ENCODER, "module.wiring"),
    _planted("transformer.position", TRANSFORMER, "activation", ENCODER),
    _planted("embedding.ids", MANY_WORDS, "activation", "embedding"),
    _planted("embedding.scale", TRANSFORMER, "activation", "embedding"),
    _planted("embedding.padding_idx", TRANSFORMER, "gradient", "embedding.weight"),
    _planted("residual.shortcut", RESIDUAL, "activation", "(model)", "module.wiring"),
    _planted("residual.order", RESIDUAL, "activation", "(model)", "module.wiring", also="activation.kind"),
    _at_start("initialisation", BLOCK, "parameter", "linear2.*"),
)

DROPOUTS = (
    _planted("dropout.generator", DROPOUT, "activation", f"{ENCODER}.self_attn", also="unknown"),
    _planted("dropout.replicas", DROPOUT_DDP, "activation", f"{ENCODER}.self_attn"),
    _planted("dropout.step", DROPOUT, "activation", f"{ENCODER}.self_attn", step=1),
    _planted("dropout.rate", DROPOUT, "activation", f"{ENCODER}.self_attn"),
    _planted("dropout.scale", DROPOUT, "activation", f"{ENCODER}.self_attn"),
    _planted("evaluation.mode", DROPOUT, "activation", f"{ENCODER}.self_attn", "dropout.active", step=2),
)

LOSSES = (
    _planted("loss.sum", CLASSES, "loss", "loss"),
    _planted("loss.kind", REGRESSION, "loss", "loss"),
    _planted("mse.reduction", BLOCK, "loss", "loss"),
    _planted("mse.broadcast", REGRESSION, "loss", "loss"),
    _planted("cross_entropy.logits", CLASSES, "loss", "loss"),
    _planted("cross_entropy.double_softmax", CLASSES, "loss", "loss"),
    _planted("cross_entropy.ignored", CLASSES, "loss", "loss"),
    _planted("cross_entropy.class_axis", AS_MANY_SAMPLES, "loss", "loss"),
    _planted("probability.clipping", SATURATED, "loss", "loss"),
)

OPTIMIZERS = (
    _planted("sgd.learning_rate", BLOCK, "update", "*"),
    _planted("sgd.momentum", TWO_STEPS, "update", "*", step=1),
    _planted("sgd.momentum_form", SCHEDULE, "optimizer_state", "linear1.weight.momentum_buffer"),
    _planted("sgd.nesterov", REGRESSION, "update", "*"),
    _planted("schedule.offset", SCHEDULE, "optimizer_state", "learning_rate"),
    _planted("weight_decay.form", ADAMW, "update", "*"),
    _planted("weight_decay.excludes_bias", REGRESSION, "update", "*.bias"),
    _planted("adamw.weight_decay", ADAMW, "update", "*"),
    _planted("adam.epsilon", ADAM, "update", "*"),
    _planted("adam.epsilon_placement", ADAM, "update", "*"),
    _planted("adam.beta2", ADAM, "optimizer_state", "*.exp_avg_sq"),
    _planted("adam.beta_precision", ADAM, "update", "*"),
    _planted("adam.bias_correction", ADAM, "update", "*"),
    _planted("constant.precision", REGRESSION, "update", "*"),
    _planted("update.frozen", BLOCK, "update", "linear1.weight"),
    _planted("clip.scope", CLIP, "gradient", "*"),
    _planted("clip.epsilon", CLIP, "gradient", "*"),
    _planted("clip.before_reduction", DDP_CLIP, "gradient", "*"),
)

DATA = (
    _planted("shard.rotated", DDP, "sample", "indices"),
    _planted("sampler.epoch", ALL_REDUCE, "sample", "indices", step=3),
    _planted("sampler.order", ALL_REDUCE, "sample", "indices"),
    _planted("sampler.offset", BLOCK, "sample", "indices"),
    _planted("sampler.drop_last", BLOCK, "sample", "indices"),
    _planted("input.scale", BLOCK, "input", "input"),
    _planted("input.layout", RESIDUAL, "input", "input"),
    _planted("target.shift", TRANSFORMER, "input", "target", "input.shift"),
)

REDUCTIONS = (
    _planted("gradient.sum", DDP, "gradient", "*", "gradient.reduction"),
    _planted("gradient.double_scaling", DDP, "gradient", "*"),
    _planted("gradient.double_reduction", ALL_REDUCE, "gradient", "*", "gradient.reduction"),
    _planted("gradient.unreduced", DDP, "gradient", "*"),
    _planted("gradient.stopped", BLOCK, "gradient", "linear1.*"),
    _planted("gradient.sign", BLOCK, "gradient", "*"),
    _planted("batch.uneven", UNEVEN, "gradient", "*"),
    _planted("accumulation.normalisation", ACCUMULATE, "gradient", "*"),
    _planted("batch_norm.buffers", RESIDUAL_DDP, "buffer", "bn1.running_*", step=1),
    _planted("batch_norm.own_buffers", RESIDUAL_DDP, "buffer", "bn1.running_*", "batch_norm.buffers", step=1),
)

PLACEMENT = (
    _planted("placement.layer", STAGES, "layout", "linear2*"),
    _planted("placement.branch", BRANCHES, "layout", "shortcut*", "placement.layer"),
    _planted("placement.backward", STAGES, "layout", "linear2"),
    _planted("placement.parameters", STAGES, "layout", "linear2*"),
)

PRECISION = (
    _planted("relu.dropped_in_float32", BLOCK, "activation", "relu", "relu.dropped"),
    _planted("relu.bfloat16_in_float32", BLOCK, "activation", "relu", "precision.bfloat16"),
    _planted("matmul.bfloat16_in_float32", ACCUMULATE, "activation", "linear1", "precision.bfloat16"),
    _planted("matmul.float16_in_float32", STACK, "activation", "layers.0", "precision.float16"),
    _planted("matmul.tf32_in_float32", STACK, "activation", "layers.0", "precision.tf32"),
    _planted("matmul.float16_sums_in_float32", STACK, "activation", "layers.0", ""),
    _planted("softmax.bfloat16_in_float32", TRANSFORMER, "activation", f"{ENCODER}.self_attn", ""),
    _planted("attention.float16_in_float32", TRANSFORMER, "activation", f"{ENCODER}.self_attn", "precision.float16"),
    _planted("layer_norm.bfloat16_in_float32", TRANSFORMER, "activation", f"{ENCODER}.norm1", "precision.bfloat16"),
    _planted("layer_norm.epsilon_in_float32", TRANSFORMER, "activation", f"{ENCODER}.norm1", "layer_norm.epsilon"),
    _planted("embedding.bfloat16_in_float32", TRANSFORMER, "activation", "embedding", "precision.bfloat16"),
)

FAULTS: tuple[Fault, ...] = (*LAYERS, *DROPOUTS, *LOSSES, *OPTIMIZERS, *DATA, *REDUCTIONS, *PLACEMENT, *PRECISION)
