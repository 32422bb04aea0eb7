"""Rows: penalties, masks in the loss, weights of samples and classes, losses of Keras's own kinds, several outputs."""

from typing import Any, Literal

from users_rows import Row, floats, ids

Truth = Literal["same", "differs"]
X = {"x": floats(8, 8)}
CLASSES = X | {"target": ids(8, below=4)}
WEIGHTED = X | {"sample_weight": floats(8)}
COUNTED = X | {"sample_weight": ids(8, below=4)}
WORDS = {"ids": ids(4, 5, below=6)}
TAGS = WORDS | {"target": ids(4, 5, below=3)}
WEIGHTED_WORDS = WORDS | {"target": floats(4, 5, 3), "sample_weight": floats(4, 5)}
TRAIN = {"learning_rate": 0.25, "steps": 3}
LOGITS = TRAIN | {"loss": "cross_entropy"}
OUTPUTS = {"outputs": {"mean": {"torch": "mean", "keras": "mean"}, "spread": {"torch": "spread", "keras": "spread"}}}


def _row(name: str, truth: Truth, why: str, models: tuple[str, str], step: str = "", **rest: Any) -> Row:
    """`step`: torch's own, if it has one. `losses`: torch's and Keras's."""
    train = rest.pop("train", TRAIN) | ({"torch_step": step} if step else {})
    if losses := rest.pop("losses", ()):
        train |= {"torch_loss": losses[0], "keras_loss": losses[1]}
    return Row(name, "losses", truth, why, rest.pop("inputs", X), *models, train, **rest)


MLP = ("mlp", "mlp")
TAGGER = ("tagger", "tagger")
PENALTIES = [
    _row("penalty_in_call", "differs", "add_loss in call", ("mlp", "Active")),
    _row("penalty_in_call_both", "same", "add_loss is torch's penalty", ("Active", "Active"), "activity"),
    _row("penalty_factor", "differs", "torch's penalty is twice as large", ("Active", "Active"), "activity_twice"),
    _row("penalty_unseen", "same", "compute_loss leaves out what call adds", ("mlp", "ActiveUnseen")),
    _row("penalty_unseen_there", "differs", "only torch adds it", ("Active", "ActiveUnseen"), "activity"),
    _row("penalty_in_training", "same", "added in training alone", ("Active", "ActiveInTraining"), "activity"),
    _row("penalty_of_activity", "differs", "activity_regularizer", ("mlp", "activity_regularized")),
    _row("penalty_of_activity_summed", "differs", "an activity_regularizer is no sum over the batch", ("Active",
        "activity_regularized"), "activity_summed"),
    _row("penalty_of_activity_mean", "same", "an activity_regularizer is a mean over samples", ("Active",
        "activity_regularized"), "activity_of_samples"),
    _row("penalty_of_kernel", "differs", "kernel_regularizer", ("mlp", "squares")),
    _row("penalty_of_kernel_both", "same", "a kernel_regularizer is torch's penalty", ("mlp", "squares"), "squares"),
    _row("penalty_of_kernel_halved", "differs", "torch has half the squares, as in weight decay", ("mlp", "squares"),
        "squares_halved"),
    _row("penalty_of_bias", "differs", "Keras penalizes the bias as well", ("mlp", "squares_of_bias"), "squares"),
    _row("penalty_of_frozen", "same", "a layer that is not trained adds no penalty", ("body_frozen", "FrozenSquares")),
    _row("penalty_of_size", "same", "an L1 regularizer is torch's penalty", ("mlp", "absolutes_set"), "absolutes"),
    _row("penalty_of_size_default", "differs", "the regularizer's name has a factor of its own", ("mlp", "absolutes"),
        "absolutes"),
    _row("penalty_twice", "same", "a layer that is called twice adds its penalty twice", ("Siamese", "Siamese"),
        "both_penalties"),
    _row("penalty_once", "differs", "torch adds the last call's penalty", ("Siamese", "Siamese"), "last_penalty"),
]  # fmt: skip
MASKS = [
    _row("loss_mask", "differs", "mask_zero masks the loss", ("tagger", "mask_zero"), inputs=WORDS),
    _row("loss_mask_both", "same", "both leave padding out of the mean", ("MaskedTagger", "mask_zero"), "masked",
        inputs=WORDS),
    _row("loss_mask_mean", "differs", "torch counts padding among the words", ("MaskedTagger", "mask_zero"),
        "masked_over_all", inputs=WORDS),
    _row("loss_mask_lost", "same", "the mask is lost before the loss", ("tagger", "MaskLost"), inputs=WORDS),
    _row("loss_mask_lost_there", "differs", "the mask is lost before the loss", ("MaskedTagger", "MaskLost"),
        "masked", inputs=WORDS),
    _row("loss_mask_functional", "differs", "a functional model's mask masks the loss", ("tagger", "mask_functional"),
        inputs=WORDS),
    _row("loss_mask_functional_both", "same", "both leave padding out", ("MaskedTagger", "mask_functional"), "masked",
        inputs=WORDS),
    _row("loss_mask_by_hand", "same", "compute_loss masks by its x", ("MaskedTagger", "MaskByHand"), "masked",
        inputs=WORDS),
    _row("loss_ignored", "same", "ignore_class is ignore_index", TAGGER, inputs=TAGS, losses=("words_ignoring",
        "ignoring")),
    _row("loss_not_ignored", "differs", "only torch ignores a class", TAGGER, inputs=TAGS, losses=("words_ignoring",
        "every_word")),
    _row("loss_words", "same", "the mean over all words", TAGGER, inputs=TAGS, losses=("words", "every_word")),
    _row("loss_words_masked", "differs", "mask_zero masks the loss of the words", ("tagger", "mask_zero"), inputs=TAGS,
        losses=("words", "every_word")),
]  # fmt: skip
WEIGHTS = [
    _row("weights", "same", "sample_weight with a built-in loss", MLP, inputs=WEIGHTED),
    _row("weights_whole", "same", "whole numbers as weights, zero among them", MLP, inputs=COUNTED),
    _row("weights_own", "same", "the weighted mean by hand", MLP, inputs=WEIGHTED, losses=("weighted", "mean_of_all")),
    _row("weights_divided", "differs", "torch divides by the weights' sum", MLP, inputs=COUNTED,
        losses=("weighted_mean", "mean_of_all")),
    _row("weights_divided_both", "same", "both divide by the weights' sum", MLP, inputs=COUNTED,
        losses=("weighted_mean", "mean_by_weight")),
    _row("weights_ignored", "differs", "torch's loss ignores the weights", MLP, inputs=WEIGHTED, losses=("unweighted",
        "mean_of_all")),
    _row("weights_unseen", "differs", "compute_loss ignores the weights", ("mlp", "ActiveUnseen"), inputs=WEIGHTED),
    _row("weights_of_words", "same", "a weight for each word", TAGGER, inputs=WEIGHTED_WORDS, losses=("weighted",
        "mean_of_all")),
    _row("weights_of_masked", "differs", "mask_zero changes what the weights are divided by", ("tagger", "mask_zero"),
        inputs=WEIGHTED_WORDS, losses=("weighted", "mean_of_all")),
    _row("weights_in_step", "same", "torch's own step is given the weights", MLP, "weighted_step", inputs=WEIGHTED),
    _row("weights_in_steps", "same", "both steps are given the weights", MLP, "weighted_step", inputs=WEIGHTED,
        train=TRAIN | {"keras_step": "weighted_step"}),
    _row("weights_in_step_unused", "differs", "Keras's own step ignores the weights", MLP, inputs=WEIGHTED,
        train=TRAIN | {"keras_step": "unweighted_step"}),
    _row("class_weights", "differs", "cross_entropy divides by the weights' sum, fit by the batch", MLP,
        inputs=CLASSES, train=LOGITS | {"class_weight": [1.0, 2.0, 0.5, 4.0]}),
    _row("class_weights_of_one", "same", "all classes weigh the same", MLP, inputs=CLASSES,
        train=LOGITS | {"class_weight": [1.0, 1.0, 1.0, 1.0]}),
    _row("class_weights_own", "same", "torch's loss divides by the batch, as fit", MLP, inputs=CLASSES,
        losses=("class_weighted", "every_word"), train=LOGITS | {"class_weight": [1.0, 2.0, 0.5, 4.0]}),
    _row("class_weights_others", "differs", "fit is given other weights", MLP, inputs=CLASSES,
        losses=("class_weighted", "every_word"), train=LOGITS | {"class_weight": [1.0, 2.0, 4.0, 0.5]}),
]  # fmt: skip
KINDS = [
    _row("loss_object", "same", "a Keras loss", MLP, losses=("mean", "mean_of_all")),
    _row("loss_class", "same", "a class of Keras's losses", MLP, losses=("mean", "MeanClass")),
    _row("loss_sum", "differs", "reduction=sum", MLP, losses=("mean", "sum_of_all")),
    _row("loss_sum_of_means", "differs", "reduction=sum adds samples up, not outputs", MLP, losses=("total",
        "sum_of_all"), train=TRAIN | {"learning_rate": 0.03125}),
    _row("loss_subclass", "same", "a subclass that returns a value for each sample", MLP, losses=("of_samples",
        "OfSamples")),
    _row("loss_function_of_samples", "same", "a function that returns a value for each sample", MLP,
        losses=("of_samples", "of_samples")),
    _row("loss_function_of_mean", "same", "a function that returns a mean", MLP, losses=("mean", "mean")),
    _row("loss_function_of_outputs", "same", "a function of outputs and target", MLP, losses=("mean", "of_outputs")),
    _row("loss_samples_or_mean", "differs", "a sum over outputs against a mean", MLP, losses=("mean", "of_samples")),
    _row("loss_called_again", "same", "compute_loss calls the model again", ("mlp", "Again")),
    _row("loss_called_otherwise", "differs", "compute_loss calls the model with other inputs", ("mlp", "Again"),
        keras_kwargs={"sign": -1.0}),
    _row("loss_huber", "same", "Huber of one is smooth_l1", MLP, losses=("smooth", "huber")),
    _row("loss_huber_wide", "differs", "smooth_l1 divides by its beta", MLP, losses=("smooth_wide", "huber_wide")),
    _row("loss_huber_delta", "same", "Huber of two on both sides", MLP, losses=("huber_wide", "huber_wide")),
    _row("loss_smoothing", "same", "a smoothing loss as a subclass", MLP, inputs=CLASSES, losses=("smoothed",
        "Smoothed"), train=LOGITS),
    _row("loss_smoothing_missing", "differs", "only torch smooths", MLP, inputs=CLASSES, losses=("smoothed", "logits"),
        train=LOGITS),
    _row("loss_logits_forgotten", "differs", "from_logits is forgotten", MLP, inputs=CLASSES, losses=("logits",
        "probabilities"), train=LOGITS),
    _row("loss_binary", "same", "binary cross entropy of logits", MLP, losses=("binary", "binary")),
    _row("loss_binary_forgotten", "differs", "a second sigmoid", MLP, losses=("binary", "binary_of_chances")),
    _row("loss_divergence", "same", "kl_div takes logarithms, Keras's chances", MLP, losses=("divergence",
        "divergence")),
    _row("loss_divergence_reversed", "differs", "the divergence the other way round", MLP, losses=("divergence",
        "divergence_reversed")),
    _row("loss_broadcast", "differs", "torch broadcasts [8, 1] with [8], Keras squeezes", ("single", "single"),
        inputs=X | {"target": floats(8)}, losses=("broadcast", "mean_of_all")),
    _row("loss_squeezed", "same", "both squeeze", ("single", "single"), inputs=X | {"target": floats(8)},
        losses=("squeezed", "mean_of_all")),
    _row("loss_of_two", "same", "compute_loss of two outputs", ("TwoHeads", "TwoHeads"), losses=("two_errors",
        "mean_of_all"), fields=OUTPUTS),
    _row("loss_of_two_weighed", "same", "compute_loss weighs the outputs", ("TwoHeads", "TwoHeads"),
        losses=("weighed_errors", "mean_of_all"), keras_kwargs={"weight": 0.25}, fields=OUTPUTS),
    _row("loss_of_two_unweighed", "differs", "compute_loss does not weigh the outputs", ("TwoHeads", "TwoHeads"),
        losses=("weighed_errors", "mean_of_all"), fields=OUTPUTS),
    _row("loss_likelihood", "same", "a Gaussian likelihood of two outputs", ("TwoHeads", "Likelihood"),
        losses=("likelihood", "mean_of_all"), fields=OUTPUTS),
    _row("loss_likelihood_deviation", "differs", "the second output is taken for a deviation", ("TwoHeads",
        "Likelihood"), losses=("likelihood", "mean_of_all"), keras_kwargs={"doubled": True}, fields=OUTPUTS),
]  # fmt: skip
LOSSES = [*PENALTIES, *MASKS, *WEIGHTS, *KINDS]
