"""Ports that differ in training, at one precision, in names, or beside what is not finite or not a function."""

import numpy as np
from rows import IDS, LONG, Row, around, differs, training

BODY = around("tanh")
UPDATES = [  # the reference's optimizer, the port's, and for how many steps
    ("percent", "sgd", "sgd_percent", 2),
    ("ppm", "sgd", "sgd_ppm", 2),
    ("decay", "sgd_decay", "sgd_decay_11", 2),
    ("decay_missing", "sgd_decay", "sgd", 2),
    ("decay_of_bias", "sgd_decay", "sgd_decay_no_bias", 2),
    ("decay_at_tiny_rate", "sgd_tiny", "sgd_tiny_decay", 2),
    ("frozen", "sgd", "sgd_frozen", 2),
    ("clip", "sgd_clip", "sgd_clip_other", 2),
    ("clip_missing", "sgd_clip", "sgd", 2),
    ("clip_each", "sgd_clip", "sgd_clip_each", 2),
    ("clip_value", "sgd_clip", "sgd_clip_value", 2),
    ("schedule_early", "sgd_schedule", "sgd_schedule_early", 3),
    ("schedule_factor", "sgd_schedule", "sgd_schedule_other", 4),
    ("schedule_late", "sgd_schedule", "sgd_schedule_3", 4),
    ("momentum", "momentum", "momentum_89", 3),
    ("momentum_missing", "momentum", "sgd", 3),
    ("nesterov", "nesterov", "momentum", 3),
    ("momentum_folded", "momentum_schedule", "momentum_schedule_folded", 4),
    ("beta1", "adam", "adam_beta1", 3),
    ("beta2", "adam", "adam_beta2", 3),
    ("eps", "adam_eps_large", "adam", 2),
    ("eps_small", "adam", "adam_eps", 2),
    ("eps_hat_small", "adam", "adam_eps_hat", 2),
    ("halted", "sgd", "sgd_halted", 4),
    ("second_step_left_out", "sgd", "sgd_skipping", 4),
    ("eps_hat", "adam_eps_large", "adam_eps_hat", 2),
    ("adam_percent", "adam", "adam_percent", 2),
    ("adam_l2_missing", "adam_l2", "adam", 3),
    ("adam_l2_or_w", "adam_l2", "adamw", 3),
    ("adamw_004", "adamw", "adamw_004", 2),
    ("adamw_no_bias", "adamw", "adamw_no_bias", 2),
    ("adamw_zero", "adamw", "adamw_zero", 2),
]
UPDATE = [
    differs(f"update_{name}", BODY, BODY, train=training(torch, keras, steps)) for name, torch, keras, steps in UPDATES
]

LOSSES = [
    ("mean_or_sum", "mean_square", "summed"),
    ("per_sample", "per_sample", "mean_square"),
    ("shifted", "mean_square", "shifted"),
    ("halved", "mean_square", "halved"),
    ("scaled_slightly", "mean_square", "scaled"),
    ("last_sample", "mean_square", "without_last"),
    ("regularized", "mean_square", "regularized"),
    ("absolute", "absolute", "mean_square"),
    ("huber_delta", "huber", "huber_wide"),
]
CLASSES = [
    ("double_softmax", "logits", "probabilities"),
    ("smoothing", "smoothed", "logits"),
    ("smoothing_form", "smoothed", "smoothed_others"),
    ("weights", "weighted", "weighted_mean"),
    ("ignored", "ignoring", "ignoring_mean"),
    ("not_ignored", "ignoring", "logits"),
]
LOSS = [
    *(differs(f"loss_{name}", BODY, BODY, train=training(loss=losses)) for name, *losses in LOSSES),
    *(
        differs(f"loss_{name}", BODY, BODY, train=training(loss=losses) | {"loss": "cross_entropy"})
        for name, *losses in CLASSES
    ),
    differs(
        "loss_binary_saturated",
        [*BODY, "scale 60"],
        [*BODY, "scale 60"],
        train=training(loss=("binary", "binary_clipped")),
    ),
]

# The reference's own noise, that no seed makes, excuses nothing.
UNSEEDED = "the reference draws noise that no seed makes; the port differs beside it by construction"
NOISY = ["linear 8 16", "grad_noise 0.001", "tanh", "linear 16 5"]
RANDOM = [
    ("optimizer_momentum", "momentum_noise", "momentum_89"),
    ("optimizer_decay", "sgd_noise", "sgd_decay"),
    ("optimizer_rate", "sgd_noise", "sgd_percent"),
    ("optimizer_betas", "adam_noise", "adam_beta1"),
    ("optimizer_eps", "adam_noise", "adam_eps"),
    ("optimizer_decoupled", "adamw_noise", "adamw_004"),
    ("optimizer_nothing", "sgd_noise", "sgd"),
    ("optimizer_little", "sgd_noise_small", "sgd_decay_11"),
    ("optimizer_frozen", "sgd_noise", "sgd_frozen"),
    ("optimizer_late", "sgd_noise_late", "sgd_schedule"),
    ("optimizer_last", "sgd_noise_last", "sgd_frozen"),
    ("optimizer_clip", "sgd_noise", "sgd_clip"),
    ("optimizer_adam_late", "adam_noise_late", "adam_percent"),
]
NOISE = [
    *(
        differs(f"noise_in_{name}", BODY, BODY, train=training(torch, keras), why=UNSEEDED)
        for name, torch, keras in RANDOM
    ),
    differs("noise_in_gradient", NOISY, ["linear 8 16", "grad_scale 0.5", "tanh", "linear 16 5"], why=UNSEEDED),
    differs("noise_in_gradient_trained", NOISY, ["linear 8 16", "grad_scale 0.999", "tanh", "linear 16 5"],
        train=training(), why=UNSEEDED),
    differs("noise_in_gradient_alone", NOISY, BODY, train=training(), why=UNSEEDED),
    differs("noise_in_forward", around("tanh; noise 0.001"), around("tanh; scale 1.001"), why=UNSEEDED),
    differs("noise_small_in_forward", around("tanh; noise 1e-7"), around("tanh; scale 1.0001"), why=UNSEEDED),
    differs("noise_in_evaluation", around("tanh; eval:noise 0.01"), around("tanh; eval:scale 1.01"), train=training(),
        why=UNSEEDED),
    differs("noise_in_float64", around("tanh; high:noise 1e-6"), around("tanh; scale 1.0001"), why=UNSEEDED),
    differs("noise_in_training", around("tanh; train:noise 1e-4"), around("tanh; train:scale 1.001"), train=training(),
        why=UNSEEDED),
    differs("drift", around("tanh; drift 0.001"), around("tanh; scale 1.001"), why=UNSEEDED),
    differs("drift_of_gradient", around("tanh; grad_drift 0.001"), around("tanh; grad_scale 0.99"), why=UNSEEDED),
    differs("signs_of_gradient", around("tanh; grad_signs"), around("tanh; grad_scale 0.5"), why=UNSEEDED),
    differs("noise_tiny_alone", around("tanh; high:noise 1e-12"), around("tanh; high:scale 1.000001"), why=UNSEEDED),
]  # fmt: skip

# Wrong at the run precision alone.
LOW = [
    differs("low_signs", around("tanh; low:scale -1"), around("tanh; low:scale 3")),
    differs("low_outputs", [*BODY, "low:scale -1"], [*BODY, "low:scale 3"]),
    differs("low_one_side", BODY, around("tanh; low:scale 1.01")),
    differs("low_one_side_little", BODY, around("tanh; low:scale 1.001"), truth="told"),  # as much as TF32 does
    differs("low_one_side_twice", BODY, [*BODY, "low:scale 2"]),
    differs("low_shifted", BODY, [*BODY, "low:add 0.01"]),
    # Less than 2^-10 of the largest value in L2: told, as TF32 is.
    differs("low_apart_little", [*BODY, "low:scale 1.002"], [*BODY, "low:scale 0.998"], truth="told"),
    differs("low_one_element", BODY, [*BODY, "low:nudge 3 0.01"]),
    differs("low_gradient", BODY, around("tanh; low:grad_scale 0.5")),
    differs("low_rounded", BODY, around("tanh; low:cast16"), truth="told"),
    differs("low_noise_hides", [*BODY, "low:scale 100"], [*BODY, "low:scale 100", "scale 1.00001"]),
    differs("low_noise_hides_more", [*BODY, "low:scale 10000"], [*BODY, "low:scale 10000", "scale 1.001"]),
    differs("high_noise_hides", [*BODY, "high:scale 100"], [*BODY, "high:scale 100", "scale 1.00001"]),
    differs("low_signs_trained", around("tanh; low:scale -1"), around("tanh; low:scale 3"), train=training("adam")),
    differs("low_gradient_behind_kinks", ["linear 4 16", "relu", "linear 16 2"],
        ["linear 4 16", "relu", "low:grad_scale 0.9", "linear 16 2"], {"x": "float32[2000,4]"}),
    # Fewer than one element in 64: told, since a sort or a comparison that fell out otherwise looks the same.
    differs("low_one_of_160000", ["linear 4 8"], ["linear 4 8", "low:nudge -1 0.1"], {"x": "float32[20000,4]"},
        truth="told"),
    differs("low_one_row", ["linear 4 8"], ["linear 4 8", "low:row 77 1.1"], {"x": "float32[20000,4]"}, truth="told"),
    differs("low_column", BODY, [*BODY, "low:column 3 1.01"]),
    differs("low_small_column", [*BODY, "column 3 1e-6"], [*BODY, "column 3 1e-6", "low:column 3 2.0"],
        why="twice, in float32 alone, in a column of 1e-6"),
    differs("low_rate", BODY, BODY, train=training("sgd", "sgd_low_rate")),
    differs("low_rates", BODY, BODY, train=training("sgd_low_rate", "sgd_low_rate_other")),
    differs("low_eps", BODY, BODY, train=training("adam", "adam_low_eps")),
    differs("high_alone", BODY, around("tanh; high:scale 1.0001")),
]  # fmt: skip

# Not finite on both sides.
INFINITE = [
    ("rate_momentum", BODY, BODY, training("sgd_infinite", "sgd_infinite_momentum")),
    ("nan_momentum", [*BODY, "scale 0.0", "log"], None, training("momentum", "momentum_89")),
    ("nan_decay", [*BODY, "scale 0.0", "log"], None, training("sgd_decay", "sgd_decay_11")),
    ("nan_betas", [*BODY, "scale -1e9", "scale 1e300", "sqrt"], None, training("adam", "adam_beta1")),
    ("inf_output_scale", [*BODY, "scale 1e300", "scale 1e300"], [*BODY, "scale 2e300", "scale 1e300"], {}),
    ("nan_everywhere", [*BODY, "scale 0.0", "log", "sin"], [*BODY, "scale 0.0", "log", "cos"], {}),
    ("inf_loss_decay", BODY, BODY, training("sgd_decay", "sgd_decay_11", loss="infinite")),
    ("nan_loss_eps", BODY, BODY, training("adam_eps_large", "adam", loss="nan")),
    ("nan_loss_momentum", BODY, BODY, training("momentum", "momentum_89", loss="nan")),
    ("nan_loss", BODY, BODY, training(loss=("nan", "nan_doubled"))),
    ("exploding_decay", BODY, BODY, training("sgd_exploding", "sgd_exploding_decay", 12)),
    ("exploding_momentum", BODY, BODY, training("sgd_exploding", "sgd_exploding_momentum", 12)),
    ("some_rows", [*BODY, "row 2 1e300", "row 2 1e300"], [*BODY, "row 2 1e300", "row 2 1e300", "row 3 1.0001"], {}),
    ("one_element", [*BODY, "nudge 3 1e999"], [*BODY, "nudge 3 1e999", "nudge 4 0.001"], {}),
]
NOT_FINITE = [
    differs(f"not_finite_{name}", torch, keras or torch, train=train, why="what is not finite cannot be compared")
    for name, torch, keras, train in INFINITE
]

# Gradients, branches and modes.
MODES = [
    differs("outputs_exchanged", [{"outputs": [["tanh"], ["sin"]]}], [{"outputs": [["sin"], ["tanh"]]}]),
    differs("one_id_without_gradient", ["embedding 1000 8", "linear 8 2"],
        ["padded_embedding 1000 8 999", "linear 8 2"], {"x": np.array([[1, 2, 3], [4, 5, 999]], np.int32)}),
    differs("detached", around("tanh"), around("tanh; detach")),
    differs("detached_branch", [{"plus": [BODY, ["linear 8 5", "scale 1e-6"]]}],
        [{"plus": [BODY, ["linear 8 5", "scale 1e-6", "detach"]]}]),
    differs("half_gradient", around("tanh"), around("tanh; grad_scale 0.5")),
    differs("gradient_slightly", around("tanh"), around("tanh; grad_scale 1.00001")),
    differs("gradient_of_one_branch", [{"plus": [BODY, ["linear 8 5"]]}],
        [{"plus": [BODY, ["linear 8 5", "grad_scale 0.9"]]}]),
    differs("tiny_branch_sign", [{"plus": [BODY, ["linear 8 5", "scale 1e-8"]]}],
        [{"plus": [BODY, ["linear 8 5", "scale -1e-8"]]}]),
    differs("straight_through", around("scale 3; straight_round"), around("scale 3; round")),
    differs("loss_scale", [*BODY, "grad_scale 1.0"], [*BODY, "grad_scale 1024"], train=training("adam")),
    differs("train_scale", around("tanh"), around("tanh; train:scale 1.01"), train=training()),
    differs("train_scale_alone", around("tanh"), around("tanh; train:grad_scale 0.9"), train=training()),
    differs("eval_scale", around("tanh"), around("tanh; eval:scale 1.001"), train=training()),
    differs("dropout_rate", around("dropout 0.25; tanh"), around("dropout 0.5; tanh"), train=training(), why="rates"),
    differs("dropout_missing", around("dropout 0.25; tanh"), around("tanh"), train=training(),
        why="a dropout is left out"),
    differs("dropout_elsewhere", around("dropout 0.5; tanh; add 0.5"), around("tanh; add 0.5; dropout 0.5"),
        train=training(), why="after the shift"),
    differs("norm_momentum", around("batch_norm 16"), around("batch_norm 16 1e-5 0.01"), train=training()),
    differs("norm_biased", around("batch_norm 16"), around("biased_batch_norm 16"), train=training()),
    differs("norm_eps_trained", around("batch_norm 16"), around("batch_norm 16 1e-3"), train=training()),
    differs("running_rate", around("running 16"), around("running 16 0.11"), train=training()),
    differs("counted", around("counter; tanh"), around("no_counter; tanh"), train=training(),
        why="a buffer that training changes has no counterpart"),
    differs("padding_trains", ["padded_embedding 20 8 3", "linear 8 4"], ["embedding 20 8", "linear 8 4"], IDS,
        train=training()),
    differs("twice_or_once", ["linear 8 8", "tanh", "again linear0"], ["linear 8 8", "tanh", "again linear0", "tanh"]),
]  # fmt: skip

# Rounding grows, and a fault with it: nothing can be said, but not that they match.
CHAOTIC = around("scale 30; sin")
HIDDEN = [
    differs("chaos_hides_decay", CHAOTIC, CHAOTIC, train=training("sgd_large", "sgd_large_decay", 30)),
    differs("chaos_hides_schedule", CHAOTIC, CHAOTIC, train=training("sgd_large", "sgd_large_halved", 30)),
    differs("chaos_hides_momentum", around("relu"), around("relu"),
        train=training("momentum_large", "momentum_large_89", 30)),
    differs("chaos_hides_late_decay", CHAOTIC, CHAOTIC, train=training("sgd_large", "sgd_large_late_decay", 30)),
    differs("chaos_of_forward", ["linear 8 8", "sigmoid", "logistic 60", "linear 8 2"],
        ["linear 8 8", "sigmoid", "logistic 60", "scale 1.01", "linear 8 2"]),
]  # fmt: skip

EXCHANGED = [
    *(
        differs(
            f"exchanged_{model}{suffix}",
            {},
            {"exchanged": True} | naming,
            LONG if model == "recurrence" else None,
            model=model,
            train=train,
        )
        for model in ("gated", "heads", "normed", "recurrence")
        for suffix, naming, train in (
            ("", {}, {}),
            ("_unnamed", {"named": False}, {}),
            ("_trained", {"named": False}, training("adam") if model != "heads" else {}),
        )
        if (model, suffix) != ("heads", "_trained")
    ),
    *(
        differs(f"exchanged_attention_{number}", {}, {"order": order, "named": named}, LONG, model="attention")
        for number, (order, named) in enumerate(
            [
                (["key", "query", "value"], True),
                (["key", "query", "value"], False),
                (["value", "key", "query"], False),
                (["query", "value", "key"], False),
            ]
        )
    ),
    differs("exchanged_attention_trained", {}, {"order": ["key", "query", "value"], "named": False}, LONG,
        model="attention", train=training("adam")),
    differs("exchanged_towers", {}, {"exchanged": True}, {"user": "float32[6,8]", "item": "float32[6,8]"},
        model="towers"),
    differs("exchanged_towers_unnamed", {}, {"exchanged": True, "named": False},
        {"user": "float32[6,8]", "item": "float32[6,8]"}, model="towers"),
    differs("exchanged_embeddings", {}, {"exchanged": True}, {"words": "int32[4,6]<20", "types": "int32[4,6]<20"},
        model="embedded"),
    differs("exchanged_embeddings_unnamed", {}, {"exchanged": True, "named": False},
        {"words": "int32[4,6]<20", "types": "int32[4,6]<20"}, model="embedded"),
]  # fmt: skip

UNSEEN = [
    differs("unseen_rate", BODY, BODY, train=training("sgd", "sgd_last_digit"), truth="subprecision"),
    differs(
        "unseen_gradient_branch",
        ["linear 8 16", "tanh", {"outputs": [["linear 16 4"], ["linear 16 4", "scale 1e9"]]}],
        ["linear 8 16", "tanh", {"outputs": [["grad_scale 0.5", "linear 16 4"], ["linear 16 4", "scale 1e9"]]}],
        truth="subprecision",
    ),
    differs("unseen_gradient", BODY, around("tanh; grad_scale 1.00000001"), truth="subprecision"),
]

THEMES: dict[str, list[Row]] = {
    "optimizers and schedules": UPDATE,
    "losses": LOSS,
    "a reference that no seed makes": NOISE,
    "wrong at the run precision alone": LOW,
    "not finite on both sides": NOT_FINITE,
    "gradients, branches, modes and buffers": MODES,
    "faults that chaos hides": HIDDEN,
    "layers exchanged": EXCHANGED,
    "what float32 cannot see in training": UNSEEN,
}
