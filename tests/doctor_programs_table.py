"""The faulty programs of tests/programs/, and what the doctor has to say of each.

A program is a file with `build` and `step`, or shares a file with those of its topic: "updates.accumulated" is
`build_accumulated` (or `build`) and `accumulated` (or `step`) of updates.py. The line at fault ends with the comment
`# fault` in the program itself, or `# fault: accumulated` in a file of several.
"""

from typing import NamedTuple


class Faulty(NamedTuple):
    """A program with a fault, and its corrected twin (`# right:`, or functions that end with `_right`).

    `where`: the module that the finding names. `placed`: whether one line is to blame. `mended`: whether the fix is
    a line which, put where the finding says, makes the program right. `same`: whether it then trains just as the
    corrected twin does, which in some rows is corrected in another way.
    """

    side: str
    name: str
    finding: str
    where: str
    inputs: list[str]
    devices: int = 1
    ranks: int = 1
    placed: bool = True
    mended: bool = False
    same: bool = True


class Clean(NamedTuple):
    """A program without a fault, of a kind that is easily taken for faulty."""

    side: str
    name: str
    inputs: list[str]
    devices: int = 1
    ranks: int = 1


X = ["x=float32[8,16]"]
XY = [*X, "y=float32[8,4]"]
LABELLED = [*X, "y=int64[8]<4"]
IMAGES = ["x=float32[2,4,8,8]"]
WORDS = ["src=int64[10,20]<1000"]

PROGRAMS = [
    Faulty("torch", "placed.one_device", "placement.one_device", "(model)", ["x=float32[8,64]"], devices=2),
    Faulty("torch", "whole_on_first", "placement.one_device", "(model)", X, devices=2),
    Faulty("torch", "placed.lopsided", "placement.lopsided", "(model)", ["x=float32[8,64]"], devices=2),
    Faulty("torch", "placed.unused_device", "placement.unused", "", X, devices=3, placed=False),
    Faulty("torch", "placed.parameter_elsewhere", "placement.parameter", "(model)", X, mended=True),
    Faulty("torch", "placed.buffer_elsewhere", "placement.buffer", "(model)", ["x=float32[2,8,16]"]),
    Faulty("torch", "placed.optimizer_elsewhere", "placement.optimizer_state", "0", X),
    Faulty("torch", "networks.hidden_list", "placement.hidden", "blocks[0]", X),
    Faulty("torch", "placed.round_robin", "placement.activation", "layers.1", X, devices=2),
    Faulty("torch", "networks.stays_in_eval", "mode.eval", "(model)", LABELLED, mended=True, same=False),
    Faulty("keras", "updates.forward_before_tape", "learning.no_gradient", "(model)", X, mended=True),
    Faulty("torch", "batches.cpu_batch", "input.device", "hidden", LABELLED),
    Faulty("torch", "batches.batch_on_other_gpu", "input.device", "0", X, devices=2),
    Faulty("torch", "placed.copied_again", "input.copied_again", "blocks.0", [*X, "mask=float32[8,16]"]),
    Faulty("torch", "batches.not_contiguous", "input.not_contiguous", "",
        ["images=float32[16,32,32,3]", "labels=int64[16]<4"],
        mended=True, same=False),
    Faulty("torch", "batches.not_pinned", "input.not_pinned", "", ["x=float32[512,1024]"]),
    Faulty("torch", "placed.constant_mask", "copy.constant", "(model)", ["x=float32[2,12,16]"]),
    Faulty("torch", "batches.constant_weights", "copy.constant", "", LABELLED),
    Faulty("torch", "placed.parameter_copied", "copy.parameter", "(model)", ["ids=int64[4,9]<50"], devices=2),
    Faulty("torch", "reads.loss_on_cpu", "sync.cpu", "", XY),
    Faulty("torch", "reads.loss_item", "sync.item", "", XY, mended=True),
    Faulty("torch", "reads.loss_list", "sync.cpu", "", LABELLED, mended=True),
    Faulty("torch", "reads.loss_printed", "sync.print", "", X),
    Faulty("torch", "reads.loss_condition", "sync.bool", "", X),
    Faulty("torch", "reads.boolean_index", "sync.boolean_index", "", ["ids=int64[4,9]<50", "tags=int64[4,9]<6"]),
    Faulty("torch", "networks.double_parameter", "type.float64_parameter", "(model)", X),
    Faulty("torch", "batches.double_input", "type.float64_input", "", X),
    Faulty("torch", "batches.double_ids", "type.float_ids", "table", WORDS),
    Faulty("torch", "batches.float_ids", "type.float_ids", "table", WORDS),
    Faulty("torch", "batches.ids_range", "type.ids_range", "table", ["ids=int64[4,9]<128"]),
    Faulty("torch", "batches.integer_images", "type.integer_input", "1", ["images=uint8[4,3,8,8]<256"]),
    Faulty("torch", "networks.mixed_parameters", "type.mixed_parameters", "(model)", X, mended=True),
    Faulty("torch", "updates.half_unscaled", "type.loss_scaling", "", XY),
    Faulty("torch", "networks.detached_encoder", "learning.no_gradient", "encoder", X, mended=True),
    Faulty("torch", "networks.no_grad_features", "learning.no_gradient", "features", X, mended=True),
    Faulty("torch", "networks.through_numpy", "learning.no_gradient", "body", X, mended=True, same=False),
    Faulty("torch", "networks.frozen_body", "learning.frozen", "body", X, placed=False),
    Faulty("torch", "networks.head_not_optimized", "learning.no_optimizer", "head", X),
    Faulty("torch", "networks.dead_relu", "learning.zero_gradient", "0", X, placed=False),
    Faulty("torch", "updates.gradients_kept", "learning.not_cleared", "", X, mended=True),
    Faulty("torch", "updates.accumulated", "learning.not_normalised", "", X, mended=True),
    Faulty("torch", "networks.left_in_eval", "mode.eval", "(model)", X, placed=False),
    Faulty("torch", "networks.validated_in_train", "mode.train", "(model)", XY),
    Faulty("torch", "networks.sequence_first", "shape.sequence_first", "encoder",
        ["ids=int64[4,9]<50", "y=int64[4]<3"]),
    Faulty("torch", "losses.loss_broadcast", "shape.loss_broadcast", "", [*X, "y=float32[8]"], mended=True),
    Faulty("torch", "losses.loss_by_hand", "shape.loss_broadcast", "", [*X, "y=float32[8]"], mended=True),
    Faulty("torch", "losses.class_axis", "shape.class_axis", "", ["ids=int64[4,6]<50", "tags=int64[4,6]<6"],
        mended=True),
    Faulty("torch", "networks.log_of_zero", "finite.forward", "(model)", X),
    Faulty("torch", "networks.sqrt_at_zero", "finite.backward", "(model)", X),
    Faulty("torch", "networks.residual_in_place", "autograd.in_place", "0", IMAGES, mended=True, same=False),
    Faulty("torch", "networks.wrong_features", "step.raised", "out", ["x=float32[2,3,8,8]"]),
    Faulty("torch", "reads.graphed", "gpu.not_pretended", "", X),
    Faulty("torch", "ddp_cpu_input", "input.device", "0", X, devices=2, ranks=2),
    Faulty("torch", "ddp_unused_head", "learning.unused_ddp", "old_head", X, devices=2, ranks=2, placed=False),
    Faulty("torch", "starts_apart", "replicas.start", "(model)", X, devices=2, ranks=2),
    Faulty("torch", "two_stages", "learning.send_without_backward", "", [*X, "y=int64[8]<4"], devices=2, ranks=2),
    Faulty("torch", "updates.never_stepped", "learning.no_step", "", LABELLED, mended=True),
    Faulty("torch", "losses.softmax_head", "loss.softmax_twice", "", LABELLED, mended=True),
    Faulty("torch", "losses.softmax_in_step", "loss.softmax_twice", "", LABELLED, mended=True, same=False),
    Faulty("torch", "losses.sigmoid_twice", "loss.sigmoid_twice", "", XY, mended=True),
    Faulty("torch", "losses.nll_of_logits", "loss.not_logarithms", "", LABELLED, mended=True),
    Faulty("torch", "losses.nll_of_probabilities", "loss.not_logarithms", "", LABELLED, mended=True),
    Faulty("torch", "updates.clipped_early", "learning.clipped_in_vain", "", X, mended=True),
    Faulty("torch", "updates.clipped_late", "learning.clipped_in_vain", "", X, mended=True),
    Faulty("torch", "updates.scheduled_first", "learning.scheduled_first", "", X, mended=True),
    Faulty("torch", "reads.loss_added_up", "memory.graph_kept", "", X, mended=True),
    Faulty("torch", "reads.losses_listed", "memory.graph_kept", "", X, mended=True),
    Faulty("torch", "losses.shuffled_apart", "loss.shuffled_apart", "", LABELLED, mended=True, same=False),
    Faulty("torch", "losses.labels_shuffled", "loss.shuffled_apart", "", [*X, "y=float32[8,1]"], mended=True),
    Faulty("torch", "updates.absurd_rate", "learning.exploding", "", X, mended=True, same=False),
    Faulty("torch", "losses.loss_detached", "learning.no_gradient", "(model)", X, mended=True),
    Faulty("torch", "losses.loss_of_argmax", "learning.no_gradient", "(model)", LABELLED, mended=True),
    Faulty("torch", "losses.detached_unrooted", "learning.no_gradient", "(model)", X, mended=True),
    # What is computed and never used, of PyTorch.
    Faulty("torch", "updates.cleared_early", "learning.cleared_early", "", LABELLED, mended=True),
    Faulty("torch", "updates.zeroed_early", "learning.cleared_early", "", XY, mended=True),
    Faulty("torch", "updates.never_warm", "learning.rate_zero", "", LABELLED, mended=True),
    Faulty("torch", "updates.rate_of_zero", "learning.rate_zero", "", X, mended=True),
    Faulty("torch", "updates.clipped_scaled", "learning.clipped_scaled", "", LABELLED, mended=True),
    Faulty("torch", "networks.layer_in_forward", "learning.made_in_call", "(model)", LABELLED),
    Faulty("torch", "networks.weight_in_forward", "learning.made_in_call", "gate", X),
    Faulty("torch", "losses.softmax_of_batch", "loss.softmax_axis", "", LABELLED, mended=True),
    Faulty("torch", "losses.softmax_module", "loss.softmax_axis", "", XY, mended=True),
    Faulty("torch", "losses.softmax_implicit", "loss.softmax_axis", "", ["ids=int64[4,6]<50", "tags=int64[4,6]<7"],
        mended=True),
    Faulty("torch", "reads.state_kept", "autograd.state_kept", "lstm", ["ids=int64[9,4]<50"], mended=True),
    Faulty("torch", "reads.hidden_kept", "autograd.state_kept", "outer", ["x=float32[4,6,8]"], mended=True),
    Faulty("torch", "reads.read_early", "sync.race", "", LABELLED, mended=True),
    Faulty("torch", "networks.batch_of_one", "shape.batch_of_one", "norm", ["x=float32[1,16]"], mended=True),
    Faulty("torch", "ranks_on_one", "placement.shared_gpu", "(model)", X, devices=2, ranks=2, mended=True),
    Faulty("torch", "fakes_attached", "learning.undetached", "", X, mended=True),
    Faulty("torch", "fakes_through", "learning.undetached", "", X, mended=True),
    Faulty("torch", "reads.features_listed", "memory.graph_kept", "encoder.1", LABELLED, mended=True),
    Faulty("torch", "reads.features_banked", "memory.graph_kept", "(model)", X, mended=True),
    Faulty("torch", "updates.unscaled_late", "learning.clipped_scaled", "", XY, mended=True),
    Faulty("keras", "placed.one_device", "placement.one_device", "(model)", ["x=float32[8,64]"], devices=2),
    Faulty("keras", "placed.lopsided", "placement.lopsided", "(model)", ["x=float32[8,64]"], devices=2),
    Faulty("keras", "placed.unused_device", "placement.unused", "", X, devices=3, placed=False),
    Faulty("keras", "placed.parameter_elsewhere", "placement.parameter", "body", X),
    Faulty("keras", "placed.buffer_elsewhere", "placement.buffer", "masked", X),
    Faulty("keras", "networks.hidden_layers", "placement.hidden", "blocks.first", X),
    Faulty("keras", "placed.round_robin", "copy.implicit", "second", X, devices=2),
    Faulty("keras", "placed.backward_elsewhere", "placement.backward", "second", X, devices=2),
    Faulty("keras", "placed.copied_again", "input.copied_again", "blocks.0", [*X, "mask=float32[8,16]"]),
    Faulty("keras", "placed.constant_mask", "copy.constant", "attention", ["x=float32[2,12,16]"]),
    Faulty("keras", "reads.loss_on_cpu", "sync.cpu", "", XY, mended=True),
    Faulty("keras", "reads.loss_item", "sync.item", "", XY, mended=True),
    Faulty("keras", "reads.loss_numpy", "sync.numpy", "", XY, mended=True),
    Faulty("keras", "reads.loss_printed", "sync.print", "", XY),
    Faulty("keras", "reads.loss_condition", "sync.bool", "", XY),
    Faulty("keras", "reads.boolean_index", "sync.boolean_index", "", ["ids=int64[4,9]<50", "tags=int64[4,9]<6"]),
    Faulty("keras", "placed.soft_placement", "placement.soft", "dense", X),
    Faulty("keras", "functions.retraced_by_number", "function.retraced", "", X, mended=True, same=False),
    Faulty("keras", "functions.retraced_by_shape", "function.retraced", "", ["ids=int64[4,9]<50"]),
    Faulty("keras", "functions.function_in_step", "function.retraced", "", X),
    Faulty("keras", "functions.py_function", "function.eager", "", X),
    Faulty("keras", "functions.run_eagerly", "function.eager", "(model)", XY),
    Faulty("keras", "networks.double_parameter", "type.float64_parameter", "dense_1", X, mended=True, same=False),
    Faulty("keras", "networks.double_input", "type.float64_input", "", X),
    Faulty("keras", "networks.double_ids", "type.float_ids", "embedding", WORDS),
    Faulty("keras", "networks.float_ids", "type.float_ids", "embedding", WORDS),
    Faulty("keras", "networks.ids_range", "type.ids_range", "table", ["ids=int64[4,9]<128"]),
    Faulty("keras", "networks.mixed_parameters", "type.mixed_parameters", "(model)", X, mended=True, same=False),
    Faulty("keras", "updates.half_unscaled", "type.loss_scaling", "", X),
    Faulty("keras", "networks.detached_encoder", "learning.no_gradient", "encoder", X, mended=True),
    Faulty("keras", "networks.through_numpy", "learning.no_gradient", "body", X, mended=True, same=False),
    Faulty("keras", "updates.outside_tape", "learning.no_gradient", "body", X, mended=True),
    Faulty("keras", "networks.frozen_body", "learning.frozen", "body", X, placed=False),
    Faulty("keras", "updates.head_not_optimized", "learning.no_optimizer", "head", X, placed=False),
    Faulty("keras", "networks.dead_relu", "learning.zero_gradient", "body", X, placed=False),
    Faulty("keras", "updates.accumulated", "learning.not_normalised", "", X),
    Faulty("keras", "networks.left_in_eval", "mode.eval", "(model)", X, placed=False),
    Faulty("keras", "networks.validated_in_train", "mode.train", "(model)", XY),
    Faulty("keras", "losses.loss_by_hand", "shape.loss_broadcast", "", [*X, "y=float32[8]"], mended=True),
    Faulty("keras", "networks.log_of_zero", "finite.forward", "(model)", X),
    Faulty("keras", "networks.sqrt_at_zero", "finite.backward", "(model)", X),
    Faulty("keras", "networks.wrong_features", "step.raised", "(model)", ["x=float32[2,8,8,3]"]),
    Faulty("keras", "updates.never_applied", "learning.no_step", "", X, mended=True),
    Faulty("keras", "losses.softmax_and_logits", "loss.softmax_twice", "", LABELLED, mended=True),
    Faulty("keras", "losses.logits_as_probabilities", "loss.raw_logits", "", LABELLED, mended=True),
    Faulty("keras", "losses.binary_logits", "loss.raw_logits", "", XY, mended=True),
    Faulty("keras", "losses.softmax_in_loop", "loss.softmax_twice", "", LABELLED, mended=True),
    Faulty("keras", "losses.sigmoid_twice", "loss.sigmoid_twice", "", [*X, "y=int64[8,1]<2"], mended=True),
    Faulty("keras", "losses.shuffled_apart", "loss.shuffled_apart", "", LABELLED, mended=True, same=False),
    Faulty("keras", "updates.absurd_rate", "learning.exploding", "", XY, mended=True, same=False),
    Faulty("keras", "losses.loss_of_argmax", "learning.no_gradient", "(model)", LABELLED, mended=True),
    Faulty("keras", "losses.loss_stopped", "learning.no_gradient", "(model)", X, mended=True),
    # Keras, second block
    Faulty("keras", "networks.all_masked", "finite.forward", "(model)", ["x=float32[8,6,16]", "y=int64[8]<5"]),
    Faulty("keras", "networks.dead_copy", "learning.no_gradient", "first", X, mended=True),
    Faulty("keras", "functions.numpy_noise", "function.frozen", "", XY, mended=True),
    Faulty("keras", "mean_by_replica", "loss.replica_mean", "", LABELLED, devices=2, mended=True),
    Faulty("keras", "networks.layer_in_call", "learning.made_in_call", "(model)", XY),
    Faulty("keras", "losses.softmax_over_batch", "loss.softmax_axis", "", LABELLED, mended=True),
    Faulty("keras", "updates.compiled_in_step", "function.compiled", "", XY, mended=True),
    Faulty("keras", "updates.predict_in_step", "function.predict", "",
        ["x=float32[8,16]", "later=float32[8,16]", "reward=float32[8]"], mended=True),
]  # fmt: skip

CLEAN = [
    Clean("torch", "data_parallel", LABELLED, devices=2),
    Clean("torch", "mixed_precision", ["ids=int64[8,12]<100", "labels=int64[8]<5"]),
    Clean("torch", "prefetched", LABELLED),
    Clean("torch", "adversarial", X),
    Clean("torch", "logged_sometimes", LABELLED),
    Clean("torch", "careful", LABELLED),
    Clean("keras", "careful", LABELLED),
    Clean("torch", "recurrent", ["ids=int64[9,4]<50"]),
    Clean("torch", "target_network", X),
    Clean("torch", "ddp_averaged", X, devices=2, ranks=2),
    Clean("torch", "ddp_partial", X, devices=2, ranks=2),
    Clean("torch", "workers", LABELLED),
    Clean("torch", "cleared_in_time", LABELLED),
    Clean("torch", "made_once", LABELLED),
    Clean("torch", "softmax_over_sets", LABELLED),
    Clean("torch", "read_in_time", LABELLED),
    Clean("torch", "states_detached", ["x=float32[4,6,8]"]),
    Clean("torch", "adversaries", XY),
    Clean("torch", "features_replayed", LABELLED),
    Clean("torch", "warm_by_epoch", LABELLED),
    Clean("torch", "scaled_twice", LABELLED),
    Clean("keras", "two_updates", LABELLED),
    Clean("torch", "built_only", ["src=int64[4,9]<100", "tgt=int64[4,7]<100"]),
    Clean("keras", "built_only", ["ids=int64[8,12]<100", "extra=float32[8,4]"]),
    Clean("keras", "adversarial", X),
    Clean("keras", "custom_loop", ["ids=int64[4,9]<50", "labels=int64[4]<3"]),
    Clean("keras", "fine_tuned", ["x=float32[4,8,8,3]", "y=int64[4]<3"]),
    Clean("keras", "fitted", ["ids=int64[8,12]<100", "labels=int64[8]<5"]),
    # Keras, second block
    Clean("keras", "target_network", X),
    Clean("keras", "variables_in_list", X),
    Clean("keras", "random_outside", XY),
]

HANGING = [
    Faulty("torch", "waits_for_batch", "step.hangs", "", X),
    Faulty("torch", "collective_order", "collective.order", "", X, devices=2, ranks=2),
    Faulty("torch", "collective_shape", "collective.shape", "", X, devices=2, ranks=2),
    Faulty("torch", "leaves_early", "collective.left", "", X, devices=2, ranks=2),
    Faulty("torch", "both_receive", "collective.order", "", X, devices=2, ranks=2),
    Faulty("keras", "waits_for_batch", "step.hangs", "", X),
]
