"""Rows: what is trained, loss scales, averages, constraints, accumulation, clipping, decay, schedules."""

from typing import Any, Literal

from users_rows import Row, floats

Truth = Literal["same", "differs"]
X = {"x": floats(8, 8)}


def _frozen(name: str, truth: Truth, why: str, torch: str, keras: str) -> Row:
    return Row(name, "updates", truth, why, X, torch, keras, {"learning_rate": 0.25, "steps": 3})


def _row(name: str, truth: Truth, why: str, torch: str, keras: str, step: str = "", **rest: Any) -> Row:
    """`torch`, `keras`: optimizers; `step`: torch's own, if it has one. `models`, if they are special."""
    steps = {"torch_step": step} if step else {}
    steps |= {"keras_step": rest.pop("keras_step")} if "keras_step" in rest else {}
    train = {"torch_optimizer": torch, "keras_optimizer": keras, "steps": rest.pop("steps", 3)} | steps
    return Row(name, "updates", truth, why, X, *rest.pop("models", ("mlp", "mlp")), train, **rest)


FROZEN = [
    _frozen("frozen_body", "same", "layer.trainable is requires_grad", "body_frozen", "body_frozen"),
    _frozen("frozen_missing", "differs", "only Keras freezes the body", "mlp", "body_frozen"),
    _frozen("frozen_missing_there", "differs", "only torch freezes the body", "body_frozen", "mlp"),
    _frozen("frozen_model", "differs", "model.trainable is False", "mlp", "model_frozen"),
    _frozen("frozen_but_head", "differs", "a trainable layer of a frozen model is not trained", "body_frozen",
        "head_within_frozen"),
    _frozen("frozen_still", "same", "trainable is set to what it is, and reaches no layer", "body_frozen",
        "still_frozen"),
    _frozen("frozen_still_there", "differs", "trainable is set to what it is, and reaches no layer", "mlp",
        "still_frozen"),
    _frozen("frozen_thawed", "differs", "model.trainable sets that of its layers", "body_frozen", "thawed"),
    _frozen("frozen_thawed_both", "same", "nothing is left frozen", "mlp", "thawed"),
    _frozen("frozen_layers", "same", "all layers but the last", "body_frozen", "layers_frozen"),
    _frozen("frozen_late", "same", "frozen in build", "body_frozen", "LateFreezing"),
    _frozen("frozen_late_missing", "differs", "frozen in build", "mlp", "LateFreezing"),
    _frozen("frozen_kernel", "same", "one variable is not trained", "kernel_frozen", "KernelFrozen"),
    _frozen("frozen_kernel_alone", "differs", "torch freezes the bias as well", "body_frozen", "KernelFrozen"),
    _frozen("frozen_nested", "same", "a frozen model within the model", "body_frozen", "Nested"),
    _frozen("frozen_stopped", "same", "no gradient reaches the body on either side", "Stopped", "Stopped"),
    _frozen("frozen_reentrant", "differs", "a reentrant checkpoint on the inputs trains nothing", "Reentrant", "mlp"),
    _frozen("frozen_reentrant_both", "same", "a reentrant checkpoint on the inputs stops gradients", "Reentrant",
        "Stopped"),
    _frozen("frozen_norm", "same", "a frozen norm keeps its statistics", "norm_frozen", "Normed"),
    _frozen("frozen_norm_statistics", "differs", "torch's norm still takes the batch's statistics", "norm_untrained",
        "Normed"),
]  # fmt: skip
SCALES = [
    _row("scale_factor", "same", "loss_scale_factor is taken back by the optimizer", "sgd", "scaling"),
    _row("scale_adam", "same", "loss_scale_factor with Adam", "adam", "adam_scaling"),
    _row("scale_dynamic", "same", "LossScaleOptimizer around SGD", "sgd", "dynamic"),
    _row("scale_dynamic_often", "same", "a scale that grows", "sgd", "dynamic_often", steps=5),
    _row("scale_dynamic_adam", "same", "LossScaleOptimizer around Adam", "adam", "adam_dynamic"),
    _row("scale_forgotten", "differs", "the train_step does not scale, the optimizer unscales", "sgd", "scaling",
        models=("mlp", "Unscaled")),
    _row("scale_forgotten_dynamic", "differs", "the same with LossScaleOptimizer", "sgd", "dynamic", models=("mlp",
        "Unscaled")),
    _row("scale_remembered", "same", "the train_step scales", "sgd", "dynamic", models=("mlp", "scaled")),
    _row("scale_idle", "same", "scale_loss of an optimizer without a scale", "sgd", "sgd", models=("mlp", "scaled")),
    _row("scale_by_hand", "differs", "a step by hand does not scale", "sgd", "scaling", keras_step="by_hand"),
    _row("scale_epsilon", "differs", "Adam's epsilon stands elsewhere", "adam_usual", "adam_usual"),
]  # fmt: skip
AVERAGES = [
    _row("average_at_the_end", "differs", "fit leaves the averages in the weights", "sgd", "averaging"),
    _row("average_each", "differs", "the weights become averages after every update", "sgd", "averaging_each"),
    _row("average_each_both", "same", "both go on with the averages", "sgd", "averaging_each", "averaged"),
    _row("average_by_hand", "same", "a step by hand leaves the averages aside", "sgd", "averaging",
        keras_step="by_hand"),
    _row("average_finalized", "differs", "the step itself finalizes", "sgd", "averaging", keras_step="finalized"),
]  # fmt: skip
CONSTRAINTS = [
    _row("limit", "differs", "max_norm", "sgd", "sgd", models=("mlp", "rows_limited")),
    _row("limit_both", "same", "max_norm is torch's limit after the step", "sgd", "sgd", "rows_limited", models=("mlp",
        "rows_limited")),
    _row("limit_columns", "differs", "torch limits the other axis", "sgd", "sgd", "columns_limited", models=("mlp",
        "rows_limited")),
    _row("positive", "differs", "non_neg", "sgd", "sgd", models=("mlp", "positive")),
    _row("positive_both", "same", "non_neg is a clamp after the step", "sgd", "sgd", "positive", models=("mlp",
        "positive")),
    _row("positive_absolute", "differs", "torch takes the absolute value", "sgd", "sgd", "absolute", models=("mlp",
        "positive")),
]  # fmt: skip
STEPS = [
    _row("hooked_gradient", "same", "a hook in torch, the train_step in Keras", "sgd", "sgd", models=("hooked",
        "Halving")),
    _row("hooked_gradient_there", "differs", "only torch's hook halves a gradient", "sgd", "sgd", models=("hooked",
        "mlp")),
    _row("accumulation", "differs", "an update after every second batch", "sgd", "accumulating", steps=4),
    _row("accumulation_both", "same", "both update after every second batch", "sgd", "accumulating", "accumulated",
        steps=4),
    _row("accumulation_summed", "differs", "torch's sum is not divided", "sgd", "accumulating", "accumulated_summed",
        steps=4),
    _row("accumulation_divided", "same", "torch divides the sum before the update", "sgd", "accumulating",
        "accumulated_divided", steps=4),
    _row("fading", "differs", "the optimizer's zero_grad leaves half of the gradients", "fading", "sgd"),
    _row("fading_both", "same", "half of the gradients that is left is momentum", "fading", "momentum",
        also=("diverged",)),
    _row("rate_early", "same", "the rate is set at the beginning of a step", "early", "halved"),
    _row("rate_early_otherwise", "differs", "Keras's rate falls twice as fast", "early", "quartered"),
    _row("clip_of_each", "same", "clipnorm is of each gradient", "sgd", "norms_clipped", "norms_clipped"),
    _row("clip_of_all", "differs", "torch clips by the global norm", "sgd", "norms_clipped", "norm_clipped"),
    _row("clip_globally", "same", "global_clipnorm", "sgd", "norm_clipped", "norm_clipped"),
    _row("decay_coupled", "same", "without momentum, both decays are one", "decayed", "decayed"),
    _row("decay_momentum", "differs", "Keras's decay does not go through the momentum", "decayed_momentum",
        "decayed_momentum"),
    _row("decay_decoupled", "same", "AdamW", "decoupled", "decoupled"),
    _row("decay_excluded", "same", "no decay of biases", "decoupled_kernels", "decoupled_kernels"),
    _row("decay_not_excluded", "differs", "only torch leaves biases out", "decoupled_kernels", "decoupled"),
    _row("nesterov", "same", "the velocity is folded in differently", "nesterov", "nesterov", also=("diverged",)),
    _row("schedule", "same", "a schedule counts iterations from 0", "sgd", "halving", "scheduled"),
    _row("schedule_early", "differs", "torch's schedule is a step ahead", "sgd", "halving", "scheduled_early"),
    _row("warm_up", "same", "a warm-up of one's own", "sgd", "warming_up", "warmed_up"),
    _row("warm_up_from_zero", "differs", "Keras's first rate is 0", "sgd", "warming_up_from_zero", "warmed_up"),
    _row("rms", "same", "the two are one where epsilon is tiny", "rms", "rms"),
    _row("rms_default", "differs", "alpha is 0.99, rho is 0.9", "rms_default", "rms_default"),
    _row("adagrad", "same", "accumulators that begin alike", "adagrad", "adagrad"),
    _row("adagrad_default", "differs", "Keras's accumulators begin at 0.1", "adagrad_default", "adagrad_default"),
]  # fmt: skip
UPDATES = [*FROZEN, *SCALES, *AVERAGES, *CONSTRAINTS, *STEPS]
