"""The catalogue of planted faults: a row for each, with what is wrong, where it must be found, and as which cause.

A row made by `_both` is a fault of either side, one made by `_torch` or `_keras` of that side alone; one that shows at
other places in Keras than in torch is made of both. The mutations themselves are in faults/ of each side.
"""

import functools

from parity.config import cases
from parity.config.schema import Case
from parity.selftest.outcome import SIDES, At, Fault, row

SMALL = {
    "vocabulary": 100, "d_model": 32, "feed_forward": 64, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0,
}  # fmt: skip
PATCHES = {"model": {"out_channels": 4}, "data": {"batch": 4, "size": 8}}
STACK = At("linear_stack/single", {"model": {"width": 64, "layers": 3}})
BLOCK = At("simple_block/single")
ADAM = At("simple_block/single@adam")
ADAMW = At("simple_block/single@adamw")
CLIP = At("simple_block/single@clip")
SCHEDULE = At("simple_block/single@schedule")
ACCUMULATE = At("simple_block/single@accumulate", {"data": {"batch": 30}})  # equal micro-batches
TWO_STEPS = At("simple_block/single", {"steps": 2})
DDP = At("simple_block/ddp")
DDP_CLIP = At("simple_block/ddp@clip")
UNEVEN = At("simple_block/ddp@uneven")
ALL_REDUCE = At("simple_block/all_reduce", {"steps": 4})  # the last of which is in the second epoch
REGRESSION = At("two_linear/single")
CLASSES = At("two_linear/single@cross_entropy")
AS_MANY_SAMPLES = At("two_linear/single@cross_entropy", {"data": {"batch": 10}})  # as classes
SATURATED = At("two_linear/single@cross_entropy", {"weight_scale": {"linear1.weight": 50.0, "linear2.weight": 50.0}})
STAGES = At("two_linear/send_recv")
RESIDUAL = At("residual_block/single", PATCHES)
RESIDUAL_DDP = At("residual_block/ddp", PATCHES | {"steps": 2})
BRANCHES = At("residual_block/branch_parallel", PATCHES)
TRANSFORMER = At("transformer/single", {"model": SMALL, "data": {"batch": 4}})
DROPOUT = At("transformer/single", {"model": SMALL | {"dropout": 0.1}, "data": {"batch": 4}, "steps": 2})
DROPOUT_DDP = At("transformer/ddp", DROPOUT.changes)
MANY_WORDS = At("transformer/single", {"model": SMALL | {"vocabulary": 1000}, "data": {"batch": 4}})
CAUSAL = At("transformer/single", {"model": SMALL | {"causal": True}, "data": {"batch": 4}})
SPECIMEN = At("specimen/single")
ENCODER = "transformer.encoder.layers.0"
ATTENDED = f"{ENCODER}.self_attn"
MASKED = "transformer.decoder.layers.0.self_attn"
NORM = f"{ENCODER}.norm1"
RUNNING, BUFFERS = "bn1.running_*", "batch_norm.buffers"
WIRING = "module.wiring"
BFLOAT16, FLOAT16, TF32 = "precision.bfloat16", "precision.float16", "precision.tf32"
_both = functools.partial(row, ("torch", "keras"))
_torch = functools.partial(row, ("torch",))
_keras = functools.partial(row, ("keras",))
# A row for each mistake, of the faults of both sides.
ROWS: tuple[list[Fault], ...] = (
    # Initial parameters.
    _both("linear.weight", "the transposed weight is loaded", STACK, "parameter", "layers.0.weight"),
    _both("conv2d.weight", "height and width swapped", RESIDUAL, "parameter", "conv1.weight"),
    _keras("conv2d.flipped", "turned by 180 degrees", SPECIMEN, "parameter", "conv.weight", "conv2d.weight"),
    _keras("conv_transpose", "the channels swapped", SPECIMEN, "parameter", "up.weight"),
    _both("attention.packing", "q, k, v in another order", TRANSFORMER, "parameter", f"{ATTENDED}.in_proj_weight"),
    _keras("initialisation", "Keras's own initial weights", BLOCK, "parameter", "linear2.*"),
    # Layers.
    _both("layer_norm.epsilon", "1.001e-5 instead of 1e-5", TRANSFORMER, "activation", NORM),
    _torch("layer_norm.small_epsilon", "1e-6", TRANSFORMER, "activation", NORM, "layer_norm.epsilon"),
    _keras("layer_norm.default_epsilon", "1e-3", TRANSFORMER, "activation", NORM, "layer_norm.epsilon"),
    _both("group_norm.epsilon", "1e-3", SPECIMEN, "activation", "group_norm"),
    _both("batch_norm.epsilon", "1e-3", RESIDUAL, "activation", "shortcut.1"),
    _both("batch_norm.momentum", "another momentum", RESIDUAL, "buffer", RUNNING),
    _both("batch_norm.running_variance", "biased", RESIDUAL, "buffer", "bn1.running_var"),
    _both("batch_norm.mode", "running statistics in training", RESIDUAL, "activation", "shortcut.1"),
    _both("batch_norm.frozen", "running statistics kept", RESIDUAL, "buffer", RUNNING),
    _keras("batch_norm.scope", "statistics of all replicas", RESIDUAL_DDP, "activation", "shortcut.1"),
    _both("linear.transposed", "product with the transposed weight", STACK, "activation", "layers.0", "linear.weight"),
    _both("linear.bias", "no bias is added", BLOCK, "activation", "linear1"),
    _keras("linear.activation", "a ReLU within", STACK, "activation", "layers.0"),
    _keras("conv2d.padding", "padded as 'same'", SPECIMEN, "activation", "conv"),
    _torch("conv2d.padding_mode", "padded with the edge", SPECIMEN, "activation", "conv"),
    _keras("max_pool.padding", "padded as 'same'", SPECIMEN, "activation", "pool"),
    _keras("flatten.order", "channels last", SPECIMEN, "activation", "flatten"),
    _both("gelu.form", "approximated by tanh", SPECIMEN, "activation", "gelu"),
    _both("softmax.axis", "over the samples", SPECIMEN, "activation", "softmax"),
    _both("relu.dropped", "the identity", BLOCK, "activation", "relu"),
    _both("relu.slope", "a slope of 0.01 below zero", BLOCK, "activation", "relu"),
    _torch("relu.cap", "capped at 1", BLOCK, "activation", "relu"),
    _keras("embedding.ids", "the next row", MANY_WORDS, "activation", "embedding"),
    _keras("embedding.scale", "times the root of its width", TRANSFORMER, "activation", "embedding"),
    _both("embedding.padding_idx", "row 0 is not trained", TRANSFORMER, "gradient", "embedding.weight"),
    _torch("embedding.frequency", "divided by the frequency", TRANSFORMER, "gradient", "embedding.weight", ""),
    # Attention.
    _both("attention.key_dim", "scaled by the dimension of all heads", TRANSFORMER, "activation", ATTENDED),
    _keras("attention.heads", "heads interleaved", TRANSFORMER, "activation", ATTENDED),
    _both("attention.batch_first", "over samples, not words", TRANSFORMER, "activation", ATTENDED),
    _both("attention.mask", "no causal mask", CAUSAL, "activation", MASKED),
    _both("attention.mask_offset", "one word ahead is seen", CAUSAL, "activation", MASKED, "attention.mask"),
    # Models of layers that are correct by themselves.
    _both("transformer.final_norm", "left out", TRANSFORMER, "activation", "transformer.encoder.norm"),
    _both("transformer.norm_order", "norms first", TRANSFORMER, "activation", ENCODER, also=WIRING),
    _torch("transformer.activation", "GELU", TRANSFORMER, "activation", ENCODER, "activation.kind"),
    _both("transformer.position", "sinusoids are added", TRANSFORMER, "activation", ENCODER),
    _both("transformer.shortcut", "none around attention", TRANSFORMER, "activation", ENCODER, WIRING),
    _both("residual.shortcut", "left out", RESIDUAL, "activation", "(model)", WIRING),
    _keras("residual.order", "norm after ReLU", RESIDUAL, "activation", "(model)", WIRING, also="activation.kind"),
    _torch("block.order", "ReLU first", BLOCK, "activation", "(model)", WIRING, also="activation.kind"),
    # Dropout.
    _both("dropout.generator", "the framework's own random numbers", DROPOUT, "activation", ATTENDED, also="unknown"),
    _both("dropout.replicas", "the masks of replica 0 on all", DROPOUT_DDP, "activation", ATTENDED),
    _both("dropout.step", "the masks of step 0 in all", DROPOUT, "activation", ATTENDED, step=1),
    [
        # torch's attention takes its rate as an argument
        *_torch("dropout.rate", "0.2 instead of 0.1", DROPOUT, "activation", f"{ENCODER}.dropout1"),
        *_keras("dropout.rate", "0.2 instead of 0.1", DROPOUT, "activation", ATTENDED),
    ],
    _both("dropout.scale", "kept values are not scaled", DROPOUT, "activation", ATTENDED),
    _torch("dropout.attention", "none in attention", DROPOUT, "activation", ATTENDED, "dropout.active"),
    _both("evaluation.mode", "evaluated as in training", DROPOUT, "activation", ATTENDED, "dropout.active", step=2),
    # Losses.
    _both("loss.sum", "a sum, not the mean", CLASSES, "loss", "loss"),
    _both("loss.kind", "absolute errors", REGRESSION, "loss", "loss"),
    _both("mse.reduction", "summed over each sample", BLOCK, "loss", "loss"),
    _both("mse.broadcast", "the target without its last axis", REGRESSION, "loss", "loss"),
    _keras("cross_entropy.logits", "logits taken for probabilities", CLASSES, "loss", "loss"),
    _both("cross_entropy.double_softmax", "a softmax before it", CLASSES, "loss", "loss"),
    _both("cross_entropy.ignored", "class 0 does not count", CLASSES, "loss", "loss"),
    _torch("cross_entropy.label_smoothing", "0.1", CLASSES, "loss", "loss"),
    _keras("cross_entropy.class_axis", "softmax over the samples", AS_MANY_SAMPLES, "loss", "loss"),
    _keras("probability.clipping", "probabilities clipped at 1e-7", SATURATED, "loss", "loss"),
    # Optimizers, schedules and clipping.
    _both("sgd.learning_rate", "another rate", BLOCK, "update", "*"),
    _keras("sgd.momentum", "0.8", TWO_STEPS, "update", "*", step=1),
    _keras(
        "sgd.momentum_form", "the rate in the velocity", SCHEDULE, "optimizer_state", "linear1.weight.momentum_buffer"
    ),
    _torch("sgd.dampening", "0.9", TWO_STEPS, "update", "*", step=1),
    _both("sgd.nesterov", "plain momentum", REGRESSION, "update", "*"),
    _both("schedule.offset", "one step early", SCHEDULE, "optimizer_state", "learning_rate"),
    _both("weight_decay.form", "added to the gradient", ADAMW, "update", "*"),
    _both("weight_decay.excludes_bias", "biases do not decay", REGRESSION, "update", "*.bias"),
    _keras("adamw.weight_decay", "0.004", ADAMW, "update", "*"),
    _both("adam.epsilon", "1e-7", ADAM, "update", "*"),
    _keras("adam.epsilon_placement", "before the bias correction", ADAM, "update", "*"),
    _torch("adam.beta1", "0.8", ADAM, "optimizer_state", "*.exp_avg"),
    _keras("adam.beta2", "0.99", ADAM, "optimizer_state", "*.exp_avg_sq"),
    _torch("adam.amsgrad", "switched on", ADAM, "optimizer_state", "*.max_exp_avg_sq"),
    _keras("adam.beta_precision", "powers of beta in float32", ADAM, "update", "*"),
    _keras("adam.bias_correction", "none", ADAM, "update", "*"),
    _keras("constant.precision", "the rate in float32", REGRESSION, "update", "*"),
    _both("update.frozen", "the first parameter stays", BLOCK, "update", "linear1.weight"),
    _both("clip.scope", "each gradient by its own norm", CLIP, "gradient", "*"),
    _torch("clip.forgotten", "not at all", CLIP, "gradient", "*", "clip.scope"),
    _torch("clip.value", "each value by itself", CLIP, "gradient", "*"),
    _keras("clip.epsilon", "no epsilon beside the norm", CLIP, "gradient", "*"),
    _keras("clip.before_reduction", "each replica's own gradients", DDP_CLIP, "gradient", "*"),
    # Data.
    _both("shard.rotated", "replica 1 has replica 0's samples", DDP, "sample", "indices"),
    _both("sampler.epoch", "the order of the first epoch in all", ALL_REDUCE, "sample", "indices", step=3),
    _torch("sampler.shuffle", "not shuffled", ALL_REDUCE, "sample", "indices"),
    _keras("sampler.order", "contiguous shards", ALL_REDUCE, "sample", "indices"),
    _keras("sampler.offset", "the next batch", BLOCK, "sample", "indices"),
    [  # DataLoader's drop_last leaves out an epoch's last batch
        *_torch("sampler.drop_last", "the last samples of an epoch", ALL_REDUCE, "sample", "indices", step=2),
        *_keras("sampler.drop_last", "the last sample of each batch", BLOCK, "sample", "indices"),
    ],
    _keras("input.scale", "divided by 255", BLOCK, "input", "input"),
    _torch("input.channels", "reversed", RESIDUAL, "input", "input", "input.layout"),
    _keras("input.layout", "height and width swapped", RESIDUAL, "input", "input"),
    _torch("target.order", "each sample has the previous one's", CLASSES, "input", "target", "input.shift"),
    _keras("target.shift", "one word further on", TRANSFORMER, "input", "target", "input.shift"),
    # Reductions.
    _both("gradient.sum", "summed over replicas, not averaged", DDP, "gradient", "*", "gradient.reduction"),
    _keras("gradient.double_scaling", "averaged twice", DDP, "gradient", "*"),
    _keras("gradient.double_reduction", "summed twice", ALL_REDUCE, "gradient", "*", "gradient.reduction"),
    _both("gradient.unreduced", "each replica's own", DDP, "gradient", "*"),
    _torch(
        "gradient.partly_unreduced", "biases are not reduced", ALL_REDUCE, "gradient", "*.bias", "gradient.unreduced"
    ),
    _torch("gradient.kept", "added to the last step's", BLOCK, "gradient", "*", step=1),
    _both("gradient.stopped", "none behind linear1", BLOCK, "gradient", "linear1.*"),
    _keras("gradient.sign", "the negative", BLOCK, "gradient", "*"),
    _both("batch.uneven", "a mean of unequal parts' means", UNEVEN, "gradient", "*"),
    _both("accumulation.normalisation", "micro-batches summed, not averaged", ACCUMULATE, "gradient", "*"),
    _both(BUFFERS, "not the first replica's", RESIDUAL_DDP, "buffer", RUNNING, step=1),
    _keras("batch_norm.own_buffers", "each replica keeps its own", RESIDUAL_DDP, "buffer", RUNNING, BUFFERS, step=1),
    _torch("send_recv.gradient", "not sent back", STAGES, "gradient", "linear1.*"),
    # Placement: correct values on wrong devices.
    [
        *_torch("placement.layer", "on another device", BRANCHES, "layout", "shortcut*"),
        *_keras("placement.layer", "on another device", STAGES, "layout", "linear2*"),
    ],
    _keras("placement.branch", "on another device", BRANCHES, "layout", "shortcut*", "placement.layer"),
    _keras("placement.backward", "on the first device", STAGES, "layout", "linear2"),
    _keras("placement.parameters", "on the first device", STAGES, "layout", "linear2*"),
    # Wrong at the run precision only: the float64 runs are correct.
    _both("relu.dropped_in_float32", "the identity", BLOCK, "activation", "relu", "relu.dropped"),
    _keras("relu.bfloat16_in_float32", "rounded outputs", BLOCK, "activation", "relu", BFLOAT16),
    _both("matmul.bfloat16_in_float32", "rounded factors and sums", ACCUMULATE, "activation", "linear1", BFLOAT16),
    _both("matmul.float16_in_float32", "rounded factors and sums", STACK, "activation", "layers.0", FLOAT16),
    _both("matmul.tf32_in_float32", "factors rounded to 10 bits", STACK, "activation", "layers.0", TF32),
    _keras("matmul.float16_sums_in_float32", "rounded sums", STACK, "activation", "layers.0", ""),
    _keras("softmax.bfloat16_in_float32", "the whole of it", TRANSFORMER, "activation", ATTENDED, ""),
    _torch("conv2d.float16_in_float32", "rounded outputs", SPECIMEN, "activation", "conv", FLOAT16),
    _torch("batch_norm.float16_in_float32", "rounded outputs", RESIDUAL, "activation", "shortcut.1", FLOAT16),
    _both("layer_norm.bfloat16_in_float32", "rounded outputs", TRANSFORMER, "activation", NORM, BFLOAT16),
    _both("layer_norm.epsilon_in_float32", "1e-3", TRANSFORMER, "activation", NORM, "layer_norm.epsilon"),
    _both("attention.float16_in_float32", "rounded outputs", TRANSFORMER, "activation", ATTENDED, FLOAT16),
    _keras("embedding.bfloat16_in_float32", "rounded outputs", TRANSFORMER, "activation", "embedding", BFLOAT16),
)
ALL: tuple[Fault, ...] = tuple(fault for side in SIDES for row in ROWS for fault in row if fault.side == side)
# The specimen is no built-in case: its model exists only for planted faults.
SPECIMEN_CASE = {"name": "specimen/single", "model": {"kind": "specimen"}, "data": {"batch": 4}, "steps": 2}


def resolve(fault: Fault) -> Case:
    name, changes = fault.at
    if name == SPECIMEN_CASE["name"]:
        return cases.convert({**SPECIMEN_CASE, **changes})
    return cases.resolve(name, changes)
