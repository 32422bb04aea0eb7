"""Identical pairs at the edges of floating point: what they are after training, chaotic or exploding ones too."""

from rows import IDS, IMAGES, LONG, Row, around, same, scaled, training

BODY = around("tanh")
OPTIMIZERS = [
    ("sgd", 5),
    ("sgd_large", 3),
    ("sgd_tiny", 3),
    ("sgd_decay", 3),
    ("sgd_clip", 4),
    ("sgd_clip_idle", 3),
    ("sgd_schedule", 5),
    ("momentum", 5),
    ("momentum_decay", 4),
    ("nesterov", 4),
    ("momentum_schedule", 4),
    ("adam", 5),
    ("adam_eps_large", 3),
    ("adam_l2", 3),
    ("adam_clip", 3),
    ("adamw", 5),
    ("adamw_large_decay", 3),
]
LOSSES = ["mean_square", "per_sample", "absolute", "huber", "binary"]
CLASSES = ["logits", "smoothed", "weighted", "ignoring"]

PLAIN = [
    *(same(f"train_{name}", BODY, train=training(name, steps=steps)) for name, steps in OPTIMIZERS),
    *(same(f"equal_loss_{name}", BODY, train=training(loss=name)) for name in LOSSES),
    *(same(f"equal_loss_{name}", BODY, train=training(loss=name) | {"loss": "cross_entropy"}) for name in CLASSES),
    same("equal_loss_by_one_hot", BODY, train=training(loss=("logits", "by_one_hot")) | {"loss": "cross_entropy"}),
    same(
        "equal_loss_saturated", [*BODY, "scale 100"], train=training(loss="logits", steps=2) | {"loss": "cross_entropy"}
    ),
    same("equal_loss_binary_saturated", [*BODY, "scale 100"], train=training(loss="binary", steps=2)),
]

# Gradients that are zero but for rounding, exactly zero, or not there.
NO_GRADIENT = [
    same("zero_gradient_bias_adam", around("batch_norm 16"), train=training("adam")),
    same("zero_gradient_bias_sgd", around("batch_norm 16"), train=training("momentum")),
    same("zero_gradient_conv_bias", ["conv 3 4 3", "batch_norm2d 4", "relu", "mean_hw"], inputs=IMAGES,
        train=training("adam")),
    same("zero_gradient_key_bias", {}, {}, LONG, model="attention", train=training("adam")),
    same("zero_gradient_shift", ["linear 8 8", "softmax", "log", "log_softmax"], train=training("adam")),
    same("zero_gradient_norm", ["linear 8 8", "centred", "linear 8 4"], train=training("adam")),
    same("dead_relu_adam", ["linear 8 8", "abs", "scale -1", "relu", "linear 8 4"], train=training("adam")),
    same("dead_relu_adamw", ["linear 8 8", "abs", "scale -1", "relu", "linear 8 4"], train=training("adamw")),
    same("floor_adam", ["linear 8 8", "floor", "linear 8 4"], train=training("adam"),
        why="torch's gradient of floor is zero, TensorFlow's none: without decay Adam moves neither"),
    same("round_sgd", ["linear 8 8", "round", "linear 8 4"], train=training("momentum")),
    same("sign_adam", ["linear 8 8", "sign", "linear 8 4"], train=training("adam")),
    same("detached_adam", ["linear 8 8", "tanh", "detach", "linear 8 4"], train=training("adam")),
    same("detached_adamw", ["linear 8 8", "tanh", "detach", "linear 8 4"], train=training("adamw"),
        why="neither side moves what has no gradient"),
    same("unused_sgd", ["linear 8 8", "unused 8 8", "linear 8 4"], train=training()),
    same("unused_adam", ["linear 8 8", "unused 8 8", "linear 8 4"], train=training("adam")),
    same("unused_adamw", ["linear 8 8", "unused 8 8", "linear 8 4"], train=training("adamw"),
        why="neither side is given what has no gradient"),
    same("seldom_ids_adam", ["embedding 100 8", "linear 8 2"], inputs={"x": "int32[2,3]<100"}, train=training("adam")),
    same("seldom_ids_adamw", ["embedding 100 8", "linear 8 2"], inputs={"x": "int32[2,3]<100"},
        train=training("adamw")),
    same("seldom_ids_momentum", ["embedding 100 8", "linear 8 2"], inputs={"x": "int32[2,3]<100"},
        train=training("momentum")),
    same("padded_ids_adam", ["padded_embedding 20 8 3", "linear 8 4"], inputs=IDS, train=training("adam")),
    same("twice_adam", ["linear 8 8", "tanh", "again linear0", "tanh", "linear 8 2"], train=training("adam")),
    same("zero_branch_adam", [{"plus": [BODY, ["linear 8 5", "scale 0.0"]]}], train=training("adam")),
    same("tiny_branch_adam", [{"plus": [BODY, ["linear 8 5", "scale 1e-12"]]}], train=training("adam")),
    same("tiny_gradients_adam", [*BODY, "scale 1e-10"], train=training("adam")),
]  # fmt: skip

MODES = [
    same("dropout", around("dropout 0.25; tanh"), train=training(), why="both draw the same masks"),
    same("dropout_twice", around("dropout 0.25; tanh; dropout 0.5"), train=training("adam"),
        why="both draw the same masks"),
    same("dropout_before_or_after", around("dropout 0.5; relu"), around("relu; dropout 0.5"), train=training(),
        why="relu(mask * x / keep) is mask * relu(x) / keep"),
    same("dropout_in_block", around("tanh; dropout 0.25"),
        ["linear 8 16", "tanh", {"plus": [["dropout 0.25"]]}, "linear 16 5"], train=training(),
        why="the same layer in a container of its own"),
    same("dropout_of_20000", ["linear 4 8", "dropout 0.5"], inputs={"x": "float32[20000,4]"}, train=training(steps=2),
        why="both draw the same masks"),
    same("norm_running", around("batch_norm 16; relu"), train=training()),
    same("norm_small_batch", around("batch_norm 16; relu"), inputs={"x": "float32[2,8]"}, train=training(steps=2)),
    same("norm_offset", around("add 100; batch_norm 16"), train=training(steps=2)),
    same("norm_constant_columns", ["linear 8 8", "every 1 0.5", "batch_norm 8", "linear 8 2"], train=training(steps=2)),
    same("running_on_both", around("running 16"), train=training()),
    same("train_scale_on_both", around("tanh; train:scale 1.01"), train=training()),
    same("counted_on_both", around("counter; tanh"), train=training(), why="both count"),
]  # fmt: skip

# Rounding grows until nothing is left to compare.
CHAOS = [
    same("chaos_large_rate", ["linear 8 32", "relu", "linear 32 32", "relu", "linear 32 4"],
        train=training("momentum_large", steps=40), truth="chaos"),
    same("chaos_sine", around("scale 30; sin"), train=training("sgd_large", steps=40), truth="chaos"),
    same("chaos_sine_adam", around("scale 30; sin"), train=training("adam_large", steps=40), truth="chaos"),
    same("chaos_norms",
        ["linear 8 32", "layer_norm 32", "relu", "linear 32 32", "layer_norm 32", "relu", "linear 32 4"],
        train=training("sgd_large", steps=40), truth="chaos"),
    same("chaos_logistic", ["linear 8 8", "sigmoid", "logistic 40", "linear 8 2"], train=training("sgd", steps=5),
        truth="chaos"),
    same("exploding", BODY, train=training("sgd_exploding", steps=12), truth="chaos"),
    same("exploding_far", BODY, train=training("sgd_exploding", steps=40), truth="chaos"),
    same("exploding_momentum", BODY, train=training("sgd_exploding_momentum", steps=20), truth="chaos"),
    same("exploding_relu", around("relu"), train=training("sgd_exploding", steps=12), truth="chaos"),
    same("infinite_rate", BODY, train=training("sgd_infinite"), truth="vacuous"),
    same("infinite_loss", BODY, train=training(loss="infinite"), truth="chaos"),
    same("nan_loss", BODY, train=training(loss="nan"), truth="vacuous"),
    same("nan_outputs", [*BODY, "scale 0.0", "log", "sin"], truth="vacuous"),
    same("infinite_outputs", [*BODY, "scale 0.0", "log"], truth="vacuous"),
]  # fmt: skip

LONG_TRAININGS = [
    same("long_sgd", BODY, train=training("sgd", steps=60)),
    same("long_adam", BODY, train=training("adam", steps=60)),
    same("long_relu", around("relu"), train=training("momentum", steps=60)),
    same("long_norm", around("batch_norm 16; relu"), train=training("sgd", steps=30)),
    same("long_attention", {}, {}, LONG, model="attention", train=training("adam", steps=20)),
]

SCALED = [
    same("train_e-30", ["linear 8 16", "linear 16 4"], inputs=scaled(1e-30), train=training()),
    same("train_e4", BODY, inputs=scaled(1e4), train=training("adam")),
    same("train_e-6_adam", BODY, inputs=scaled(1e-6), train=training("adam")),
    same("train_masked", [*BODY, "every 3 -1e9"], train=training("sgd", loss="logits") | {"loss": "cross_entropy"}),
    same(
        "train_batch_20000",
        ["linear 4 8", "relu", "linear 8 2"],
        inputs={"x": "float32[20000,4]"},
        train=training("adam", steps=2),
    ),
]

NAMED = [
    *(
        same(f"named_{model}{suffix}", {}, naming, LONG if model in ("attention", "recurrence") else None, model=model)
        for model in ("gated", "heads", "normed", "recurrence", "attention")
        for suffix, naming in (("", {}), ("_unnamed", {"named": False}))
    ),
    same("named_exchanged_on_both", {"exchanged": True}, {"exchanged": True, "named": False}, model="gated"),
    same("named_causal", {"causal": True}, {"causal": "-inf"}, LONG, model="attention"),
    same("named_causal_1e9", {"causal": True}, {"causal": -1e9}, LONG, model="attention"),
    same("named_trained", {}, {"named": False}, model="gated", train=training("adamw")),
    same("named_attention_trained", {}, {"named": False}, LONG, model="attention", train=training("adamw")),
    same("named_towers", {}, {"named": False}, {"user": "float32[6,8]", "item": "float32[6,8]"}, model="towers"),
    same(
        "named_embeddings", {}, {"named": False}, {"words": "int32[4,6]<20", "types": "int32[4,6]<20"}, model="embedded"
    ),
]

THEMES: dict[str, list[Row]] = {
    "trainings": PLAIN,
    "gradients that are zero, or not there": NO_GRADIENT,
    "dropout, statistics and modes": MODES,
    "chaotic and exploding trainings": CHAOS,
    "long trainings": LONG_TRAININGS,
    "trainings at other scales": SCALED,
    "layers under other names": NAMED,
}
