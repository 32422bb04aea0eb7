"""Rows: what fit does of the user's own, and steps of one's own."""

from typing import Any, Literal

from users_rows import Row, floats, ids

X = {"x": floats(8, 8)}
CLASSES = X | {"target": ids(8, below=4)}
TRAIN = {"learning_rate": 0.25, "steps": 3}
# The optimizer of the frameworks themselves: clipping by a built-in one is PyTorch's.
OWN_SGD = TRAIN | {"torch_optimizer": "sgd", "keras_optimizer": "sgd"}
LOGITS = TRAIN | {"loss": "cross_entropy"}
EAGER = {"is_eager": True}


def _row(name: str, truth: Literal["same", "differs"], why: str, keras: str, step: str = "", **rest: Any) -> Row:
    """`step`: torch's own, if it has one."""
    train = rest.pop("train", TRAIN) | ({"torch_step": step} if step else {})
    return Row(name, "fit", truth, why, rest.pop("inputs", X), rest.pop("torch", "mlp"), keras, train, **rest)


def _by_hand(name: str, truth: Literal["same", "differs"], why: str, step: str, torch: str = "", **rest: Any) -> Row:
    """`step`: Keras's own, `torch`: torch's."""
    train, builder = TRAIN | {"keras_step": step}, rest.pop("torch_builder", "mlp")
    return _row(name, truth, why, rest.pop("keras", "mlp"), torch, train=train, torch=builder, **rest)


FIT = [
    _row("fit_plain", "same", "fit is the plain loop", "mlp"),
    _row("fit_documented", "same", "the train_step of Keras's guide is the plain loop", "Stepping"),
    _row("fit_tracked", "same", "the guide's second train_step has trackers and apply_gradients", "Tracked"),
    _row("fit_torch_step", "same", "torch's plain loop as a step of its own", "mlp", "plain"),
    _row("fit_zero_at_the_end", "same", "zero_grad after the step is as good as before backward", "mlp",
        "zero_at_the_end"),
    _row("fit_never_zeroed", "differs", "torch adds up the gradients of all steps", "mlp", "never_zeroed"),
    _row("fit_halved", "differs", "the train_step halves the loss", "Halved"),
    _row("fit_head_alone", "differs", "the train_step leaves the body as it is", "HeadAlone"),
    _row("fit_head_alone_both", "same", "both leave the body as it is", "HeadAlone", "head_alone"),
    _row("fit_clipped", "differs", "the train_step clips", "Clipped"),
    _row("fit_clipped_both", "same", "both clip by the global norm", "Clipped", "clipped"),
    _row("fit_clipped_each", "differs", "one clips each gradient, one all of them", "ClippedEach", "clipped"),
    _row("fit_clipped_values", "same", "both clip every element", "ClippedValues", "clipped_values"),
    _row("fit_twice", "differs", "the train_step makes two updates", "Twice"),
    _row("fit_twice_both", "same", "both make two updates with each batch", "Twice", "twice"),
    _row("fit_penalty", "differs", "the train_step adds a penalty on the weights", "Penalized"),
    _row("fit_penalty_both", "same", "both add a penalty on the weights", "Penalized", "weights_penalized"),
    _row("fit_smoothed", "differs", "the train_step smooths the labels", "Smoothed", inputs=CLASSES, train=LOGITS),
    _row("fit_smoothed_both", "same", "labels smoothed by hand are cross_entropy's label_smoothing", "Smoothed",
        inputs=CLASSES, train=LOGITS | {"torch_loss": "smoothed", "keras_loss": "logits"}),
    _row("fit_teacher", "same", "a mean teacher on both sides", "Teacher", "taught", torch="Teacher"),
    _row("fit_teacher_early", "differs", "the teacher is averaged before the student's step", "Teacher", "taught",
        torch="Teacher", keras_kwargs={"early": True}),
    _row("fit_teacher_trained", "differs", "the teacher is trained by the consistency loss as well", "Teacher",
        "taught", torch="Teacher", keras_kwargs={"alike": True}),
    _row("fit_sharpness", "same", "sharpness-aware minimization on both sides", "SharpnessAware", "sharpness_aware"),
    _row("fit_sharpness_kept", "differs", "the perturbed weights are not put back before the update", "SharpnessAware",
        "sharpness_aware", keras_kwargs={"restored": False}),
    _row("fit_gradient_penalty", "same", "both differentiate a gradient", "GradientPenalty", "penalized"),
    _row("fit_gradient_penalty_in_vain", "differs", "torch's penalty has no gradient without create_graph",
        "GradientPenalty", "penalized_in_vain"),
    _row("fit_micro_batches", "same", "the mean of two halves' gradients is the batch's gradient", "MicroBatches"),
    _row("fit_micro_batches_summed", "differs", "the halves' gradients are added up", "MicroBatches",
        keras_kwargs={"averaged": False}),
    _row("fit_adversarial", "same", "both train on adversarial samples", "Adversarial", "adversarial"),
    _row("fit_adversarial_sign", "differs", "the samples are moved the other way", "Adversarial", "adversarial",
        keras_kwargs={"sign": -1.0}),
    _row("fit_flipped", "same", "both train on the mirrored batch as well", "Flipped", "flipped"),
    _row("fit_flipped_missing", "differs", "only torch trains on the mirrored batch as well", "mlp", "flipped"),
    _row("fit_entropy", "differs", "compute_loss has another term", "Entropy", inputs=CLASSES, train=LOGITS),
    _row("fit_entropy_both", "same", "compute_loss has the term that torch's loss has", "Entropy", inputs=CLASSES,
        train=LOGITS | {"torch_loss": "entropy", "keras_loss": "logits"}),
    _row("fit_own_loss", "same", "compute_loss is the mean square by hand", "OwnLoss"),
    _row("fit_compiling", "differs", "compile switches clipping on", "Compiling", train=OWN_SGD),
    _row("fit_compiling_both", "same", "compile switches on the clipping that torch has", "Compiling", "clipped",
        train=OWN_SGD),
    _row("fit_bootstrapped", "same", "targets of the model's own, detached on both sides", "Bootstrapped",
        "bootstrapped"),
    _row("fit_bootstrapped_open", "differs", "the gradient flows into the targets", "Bootstrapped", "bootstrapped",
        keras_kwargs={"stopped": False}),
    _row("fit_two_rates", "same", "the head has a rate of its own on both sides", "TwoRates", "two_rates",
        train=TRAIN | {"learning_rate": 0.125}),
    _row("fit_two_rates_slow", "differs", "the head's own optimizer has another rate", "TwoRates", "two_rates",
        train=TRAIN | {"learning_rate": 0.125}, keras_kwargs={"rate": 0.375}),
    _row("fit_normed", "same", "centred by the batch in training on both sides", "Normed", torch="Normed"),
    _row("fit_normed_forgotten", "differs", "the train_step calls the model as in inference", "NormedForgotten",
        torch="Normed"),
    _row("fit_normed_inference", "same", "both train the model as it is in inference", "NormedForgotten",
        "normed_in_inference", torch="Normed"),
    _row("fit_compiled_builder", "same", "the builder compiled the model, alike", "compiled_builder"),
    _row("fit_alternating", "differs", "the graph that fit traces always trains the same layers", "alternating",
        "alternated"),
    _row("fit_alternating_eagerly", "same", "run_eagerly trains the body in every second step", "alternating",
        "alternated", keras_kwargs=EAGER),
    _row("fit_relaxed", "differs", "the graph that fit traces keeps one penalty", "relaxed", "relaxed"),
    _row("fit_relaxed_eagerly", "same", "run_eagerly halves the penalty after every step", "relaxed", "relaxed",
        keras_kwargs=EAGER),
    _row("fit_graph", "differs", "the model asks for a graph", "eagerly_doubled", torch="Doubled"),
    _row("fit_graph_eagerly", "same", "the model asks for a graph, and run_eagerly makes none", "eagerly_doubled",
        torch="Doubled", keras_kwargs=EAGER),
    _row("fit_function", "differs", "make_train_function clips the weights", "WeightsClipped"),
    _row("fit_function_both", "same", "both clip the weights", "WeightsClipped", "weights_clipped",
        also=("inconclusive",)),
    _row("fit_overridden", "differs", "fit doubles its inputs", "Doubling"),
    _row("fit_overridden_both", "same", "fit and torch's step double their inputs", "Doubling", "doubled",
        also=("inconclusive",)),
    _by_hand("step_by_hand", "same", "a step with a tape on one side is fit", "by_hand"),
    _by_hand("step_both", "same", "steps by hand on both sides", "by_hand", "plain"),
    _by_hand("step_compiled", "same", "the step is a tf.function", "compiled"),
    _by_hand("step_on_batch", "same", "the step calls train_on_batch", "on_batch"),
    _by_hand("step_summed", "differs", "the step's loss is a sum", "summed"),
    _by_hand("step_clipped", "differs", "only torch's step clips", "by_hand", "clipped"),
    _by_hand("step_normed", "same", "the step says training=True", "by_hand", keras="Normed", torch_builder="Normed"),
    _by_hand("step_normed_inference", "differs", "the step says training=False", "by_hand_in_inference", keras="Normed",
        torch_builder="Normed"),
    _by_hand("step_around_train_step", "differs", "the step does not call the clipping train_step", "by_hand",
        "clipped", keras="Clipped"),
]  # fmt: skip
