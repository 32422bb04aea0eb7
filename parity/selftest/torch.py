"""List the faults that are planted on the PyTorch side (torch_impl/harness/faults), each with a case that shows it."""

import functools

from parity.selftest.fault import Fault, planted
from parity.selftest.small_cases import (
    ACCUMULATE,
    ADAM,
    ADAMW,
    ALL_REDUCE,
    BLOCK,
    BRANCHES,
    CAUSAL,
    CLASSES,
    CLIP,
    DDP,
    DROPOUT,
    DROPOUT_DDP,
    REGRESSION,
    RESIDUAL,
    RESIDUAL_DDP,
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

_planted = functools.partial(planted, "torch")
_at_start = functools.partial(planted, "torch", step=None)

STARTS = (
    _at_start("linear.weight", STACK, "parameter", "layers.0.weight"),
    _at_start("conv2d.weight", RESIDUAL, "parameter", "conv1.weight"),
    _at_start("attention.packing", TRANSFORMER, "parameter", f"{ENCODER}.self_attn.in_proj_weight"),
)

LAYERS = (
    _planted("layer_norm.epsilon", TRANSFORMER, "activation", f"{ENCODER}.norm1"),
    _planted("layer_norm.small_epsilon", TRANSFORMER, "activation", f"{ENCODER}.norm1", "layer_norm.epsilon"),
    _planted("group_norm.epsilon", SPECIMEN, "activation", "group_norm"),
    _planted("batch_norm.epsilon", RESIDUAL, "activation", "shortcut.1"),
    _planted("batch_norm.momentum", RESIDUAL, "buffer", "bn1.running_*"),
    _planted("batch_norm.running_variance", RESIDUAL, "buffer", "bn1.running_var"),
    _planted("batch_norm.mode", RESIDUAL, "activation", "shortcut.1"),
    _planted("batch_norm.frozen", RESIDUAL, "buffer", "bn1.running_*"),
    _planted("linear.transposed", STACK, "activation", "layers.0", "linear.weight"),
    _planted("linear.bias", BLOCK, "activation", "linear1"),
    _planted("conv2d.padding_mode", SPECIMEN, "activation", "conv"),
    _planted("gelu.form", SPECIMEN, "activation", "gelu"),
    _planted("softmax.axis", SPECIMEN, "activation", "softmax"),
    _planted("relu.dropped", BLOCK, "activation", "relu"),
    _planted("relu.slope", BLOCK, "activation", "relu"),
    _planted("relu.cap", BLOCK, "activation", "relu"),
    _planted("embedding.padding_idx", TRANSFORMER, "gradient", "embedding.weight"),
    _planted("embedding.frequency", TRANSFORMER, "gradient", "embedding.weight", ""),
)

ATTENTION = (
    _planted("attention.key_dim", TRANSFORMER, "activation", f"{ENCODER}.self_attn"),
    _planted("attention.batch_first", TRANSFORMER, "activation", f"{ENCODER}.self_attn"),
    _planted("attention.mask", CAUSAL, "activation", f"{DECODER}.self_attn"),
    _planted("attention.mask_offset", CAUSAL, "activation", f"{DECODER}.self_attn", "attention.mask"),
)

COMPOSITES = (
    _planted("transformer.final_norm", TRANSFORMER, "activation", "transformer.encoder.norm"),
    _planted("transformer.norm_order", TRANSFORMER, "activation", ENCODER, also="module.wiring"),
    _planted("transformer.activation", TRANSFORMER, "activation", ENCODER, "activation.kind"),
    _planted("transformer.position", TRANSFORMER, "activation", ENCODER),
    _planted("transformer.shortcut", TRANSFORMER, "activation", ENCODER, "module.wiring"),
    _planted("residual.shortcut", RESIDUAL, "activation", "(model)", "module.wiring"),
    _planted("block.order", BLOCK, "activation", "(model)", "module.wiring", also="activation.kind"),
)

DROPOUTS = (
    _planted("dropout.generator", DROPOUT, "activation", f"{ENCODER}.self_attn", also="unknown"),
    _planted("dropout.replicas", DROPOUT_DDP, "activation", f"{ENCODER}.self_attn"),
    _planted("dropout.step", DROPOUT, "activation", f"{ENCODER}.self_attn", step=1),
    _planted("dropout.rate", DROPOUT, "activation", f"{ENCODER}.dropout1"),
    _planted("dropout.scale", DROPOUT, "activation", f"{ENCODER}.self_attn"),
    _planted("dropout.attention", DROPOUT, "activation", f"{ENCODER}.self_attn", "dropout.active"),
    _planted("evaluation.mode", DROPOUT, "activation", f"{ENCODER}.self_attn", "dropout.active", step=2),
)

LOSSES = (
    _planted("loss.sum", CLASSES, "loss", "loss"),
    _planted("loss.kind", REGRESSION, "loss", "loss"),
    _planted("mse.reduction", BLOCK, "loss", "loss"),
    _planted("mse.broadcast", REGRESSION, "loss", "loss"),
    _planted("cross_entropy.double_softmax", CLASSES, "loss", "loss"),
    _planted("cross_entropy.ignored", CLASSES, "loss", "loss"),
    _planted("cross_entropy.label_smoothing", CLASSES, "loss", "loss"),
)

OPTIMIZERS = (
    _planted("sgd.learning_rate", BLOCK, "update", "*"),
    _planted("sgd.dampening", TWO_STEPS, "update", "*", step=1),
    _planted("sgd.nesterov", REGRESSION, "update", "*"),
    _planted("schedule.offset", SCHEDULE, "optimizer_state", "learning_rate"),
    _planted("weight_decay.form", ADAMW, "update", "*"),
    _planted("weight_decay.excludes_bias", REGRESSION, "update", "*.bias"),
    _planted("adam.epsilon", ADAM, "update", "*"),
    _planted("adam.beta1", ADAM, "optimizer_state", "*.exp_avg"),
    _planted("adam.amsgrad", ADAM, "optimizer_state", "*.max_exp_avg_sq"),
    _planted("update.frozen", BLOCK, "update", "linear1.weight"),
    _planted("clip.scope", CLIP, "gradient", "*"),
    _planted("clip.forgotten", CLIP, "gradient", "*", "clip.scope"),
    _planted("clip.value", CLIP, "gradient", "*"),
)

DATA = (
    _planted("shard.rotated", DDP, "sample", "indices"),
    _planted("sampler.epoch", ALL_REDUCE, "sample", "indices", step=3),
    _planted("sampler.shuffle", ALL_REDUCE, "sample", "indices"),
    _planted("sampler.drop_last", ALL_REDUCE, "sample", "indices", step=2),
    _planted("input.channels", RESIDUAL, "input", "input", "input.layout"),
    _planted("target.order", CLASSES, "input", "target", "input.shift"),
)

REDUCTIONS = (
    _planted("gradient.sum", DDP, "gradient", "*", "gradient.reduction"),
    _planted("gradient.unreduced", DDP, "gradient", "*"),
    _planted("gradient.partly_unreduced", ALL_REDUCE, "gradient", "*.bias", "gradient.unreduced"),
    _planted("gradient.kept", BLOCK, "gradient", "*", step=1),
    _planted("gradient.stopped", BLOCK, "gradient", "linear1.*"),
    _planted("batch.uneven", UNEVEN, "gradient", "*"),
    _planted("accumulation.normalisation", ACCUMULATE, "gradient", "*"),
    _planted("batch_norm.buffers", RESIDUAL_DDP, "buffer", "bn1.running_*", step=1),
    _planted("send_recv.gradient", STAGES, "gradient", "linear1.*"),
)

PLACEMENT = (_planted("placement.layer", BRANCHES, "layout", "shortcut*"),)

PRECISION = (
    _planted("relu.dropped_in_float32", BLOCK, "activation", "relu", "relu.dropped"),
    _planted("matmul.bfloat16_in_float32", ACCUMULATE, "activation", "linear1", "precision.bfloat16"),
    _planted("matmul.float16_in_float32", STACK, "activation", "layers.0", "precision.float16"),
    _planted("matmul.tf32_in_float32", STACK, "activation", "layers.0", "precision.tf32"),
    _planted("conv2d.float16_in_float32", SPECIMEN, "activation", "conv", "precision.float16"),
    _planted("batch_norm.float16_in_float32", RESIDUAL, "activation", "shortcut.1", "precision.float16"),
    _planted("layer_norm.bfloat16_in_float32", TRANSFORMER, "activation", f"{ENCODER}.norm1", "precision.bfloat16"),
    _planted("layer_norm.epsilon_in_float32", TRANSFORMER, "activation", f"{ENCODER}.norm1", "layer_norm.epsilon"),
    _planted("attention.float16_in_float32", TRANSFORMER, "activation", f"{ENCODER}.self_attn", "precision.float16"),
)

FAULTS: tuple[Fault, ...] = (
    *STARTS,
    *LAYERS,
    *ATTENTION,
    *COMPOSITES,
    *DROPOUTS,
    *LOSSES,
    *OPTIMIZERS,
    *DATA,
    *REDUCTIONS,
    *PLACEMENT,
    *PRECISION,
)
