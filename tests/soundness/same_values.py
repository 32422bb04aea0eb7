"""Identical pairs at the edges of floating point: what they compute in one forward and backward pass."""

import numpy as np
from rows import IDS, IMAGES, LONG, Row, around, same, scaled

BODY = ["linear 8 16", "tanh", "linear 16 8"]

# One function written in two ways.
WAYS = [
    ("silu", "silu", "silu_division"),
    ("sigmoid", "sigmoid", "sigmoid_by_tanh"),
    ("gelu_exact", "gelu_exact", "gelu_exact"),
    ("gelu_tanh", "gelu_tanh", "gelu_tanh"),
    ("elu", "elu", "elu"),
    ("selu", "selu", "selu"),
    ("celu", "celu 0.5", "celu 0.5"),
    ("softplus", "softplus", "softplus"),
    ("softplus_log", "softplus", "softplus_log"),
    ("mish", "mish", "mish"),
    ("hard_swish", "hard_swish", "hard_swish"),
    ("leaky", "leaky 0.01", "leaky_maximum 0.01"),
    ("softsign", "softsign", "softsign"),
    ("log_sigmoid", "log_sigmoid", "log_sigmoid_naive"),
    ("softshrink", "softshrink 0.5", "softshrink 0.5"),
    ("tanhshrink", "tanhshrink", "tanhshrink"),
    ("glu", "glu; double", "glu; double"),
    ("softmax", "softmax", "naive_softmax"),
    ("softmax_stable", "softmax", "stable_softmax"),
    ("softmax_by_log", "softmax", "softmax_exp_log"),
    ("log_softmax", "log_softmax", "log_of_softmax"),
    ("logsumexp", "logsumexp; unsqueeze -1; repeat 16", "log_sum_exp_naive; unsqueeze -1; repeat 16"),
    ("standard_one_pass", "standard 1e-5", "standard_one_pass 1e-5"),
    ("mean_by_sum", "split_rows 4; mean; repeat 4", "split_rows 4; mean_by_sum; repeat 4"),
    ("variance_moments", "split_rows 4; var 0; repeat 4", "split_rows 4; var_moments; repeat 4"),
    ("sum_by_matmul", "split_rows 4; sum; repeat 4", "split_rows 4; sum_by_matmul; repeat 4"),
    ("sum_sorted", "split_rows 4; sum; repeat 4", "split_rows 4; sum_sorted; repeat 4"),
    ("norm_by_sqrt", "split_rows 4; norm; repeat 4", "split_rows 4; norm_by_sqrt; repeat 4"),
    ("rsqrt", "square; add 1e-3; rsqrt", "square; add 1e-3; one_over_sqrt"),
    ("square_product", "square", "product"),
    ("log1p", "square; log1p", "square; log_one_plus"),
    ("scaled_twice", "scale 0.1; scale 10", "scale 10; scale 0.1"),
    ("not_scaled", "tanh", "scale 3; scale 0.3333333333333333; tanh"),
    ("there_and_back", "tanh", "tanh; add 0.5; add -0.5"),
    ("roll_round", "roll 3", "roll 1; roll 2"),
    ("reversed_twice", "tanh", "reverse; tanh; reverse"),
    ("swapped_sum", "tanh", "tanh; exp; log"),
    ("max_amax", "split_rows 4; max; repeat 4", "split_rows 4; amax; repeat 4"),
]

# Saturated, and at scales far from one.
SCALES = [("e-30", 1e-30), ("e-12", 1e-12), ("e-4", 1e-4), ("e2", 1e2), ("e4", 1e4), ("e12", 1e12), ("e30", 1e30)]
SATURATED = [
    ("sigmoid_50", "scale 50; sigmoid"),
    ("sigmoid_1e4", "scale 1e4; sigmoid"),
    ("tanh_50", "scale 50; tanh"),
    ("tanh_1e4", "scale 1e4; tanh"),
    ("softmax_50", "scale 50; softmax"),
    ("softmax_1e4", "scale 1e4; softmax"),
    ("log_softmax_1e4", "scale 1e4; log_softmax"),
    ("logsumexp_1e3", "scale 1e3; logsumexp; unsqueeze -1; repeat 16"),
    ("silu_1e3", "scale 1e3; silu"),
    ("softplus_100", "scale 100; softplus"),
    ("gelu_50", "scale 50; gelu_exact"),
    ("relu6_50", "scale 50; relu6"),
    ("erf_10", "scale 10; erf"),
    ("atan_1e6", "scale 1e6; atan"),
    ("exp_20", "scale 10; clip -20 20; exp; scale 1e-8"),
    ("exp_to_1e30", "clip -1 1; scale 69; exp; scale 1e-30"),
    ("expm1_small", "scale 1e-10; expm1; scale 1e10"),
    ("log1p_small", "scale 1e-10; log1p; scale 1e10"),
    ("reciprocal_small", "square; add 1e-6; reciprocal; scale 1e-6"),
    ("rsqrt_small", "square; add 1e-12; rsqrt; scale 1e-6"),
    ("sin_1e3", "scale 1e3; sin"),
    ("tenth_power", "power 9"),
    ("deep_exponent", "scale 0.1; exp; exp; log; log"),
]
CANCELLED = [
    ("centred_1e4", "add 1e4; centred"),
    ("centred_1e6", "add 1e6; centred"),
    ("centred_batch_1e4", "add 1e4; centred 0"),
    ("standard_of_1e3", "add 1e3; standard 1e-5"),
    ("standard_of_1e4", "add 1e4; standard 1e-5"),
    ("standard_nearly_constant", "scale 1e-4; add 1; standard 1e-5"),
    ("standard_of_zeros", "scale 0.0; standard 1e-5"),
    ("l2_of_zeros", "relu; l2_normal 1e-6"),
    ("added_and_taken", "add 1e5; add -1e5"),
    ("variance_of_1e3", "add 1e3; split_rows 4; var 1; repeat 4"),
]
KINKS = [
    ("floor", "scale 3; floor"),
    ("round", "scale 3; round"),
    ("round_straight", "scale 3; straight_round"),
    ("trunc", "scale 3; trunc"),
    ("sign", "sign"),
    ("abs", "abs"),
    ("sort", "sort"),
    ("descending", "descending"),
    ("top", "top 8; double"),
    ("modulo", "scale 3; modulo 2.0"),
    ("cumsum", "cumsum"),
    ("cumsum_batch", "cumsum 0"),
    ("cumprod", "cumprod"),
    ("clip_at_ends", "scale 2; clip -1 1"),
    ("relu_dead", "abs; scale -1; relu; add 0.5"),
    ("hardshrink", "hardshrink 0.5"),
    ("threshold", "threshold 0.1 0.0"),
    ("masked_zeros", "every 3 0.0"),
    ("detached", "detach"),
    ("half_gradient", "grad_scale 0.5"),
]

TIES = {"x": np.array([[0.0, 1.0, 1.0, -1.0, 0.0, 2.0, 2.0, -2.0]] * 4, np.float32)}
HALVES = {"x": np.array([[0.5, 1.5, 2.5, -0.5, -1.5, 3.25, 0.75, -2.5]] * 4, np.float32)}
ZEROS = {"x": np.zeros((4, 8), np.float32)}
DENORMAL = {"x": np.full((4, 8), 1e-40, np.float32)}
EQUAL_PIXELS = {"x": {"shape": [2, 3, 8, 8], "keras_layout": "n c h w -> n h w c", "scale": 0.0}}
SIXTH = "torch's hardsigmoid holds a sixth in float32 where it is differentiated"
TOLD = [
    same("way_hard_sigmoid", around("hard_sigmoid"), also=("subprecision",), why=SIXTH),
]
EXACT = [
    same("ties_relu", ["relu", "linear 8 4"], inputs=TIES),
    same("ties_sort", ["sort", "linear 8 4"], inputs=TIES,
        why="sorted equal values are equal; so are their places' weights' sums"),
    same("ties_argmax", [{"outputs": [["argmax"], ["linear 8 4"]]}], inputs=TIES),
    same("distinct_argmax", [{"outputs": [["linear 8 8", "argmax"], ["linear 8 4"]]}]),
    same("halves_round", ["round", "linear 8 4"], inputs=HALVES),
    same("halves_floor", ["floor", "linear 8 4"], inputs=HALVES),
    same("zeros", BODY, inputs=ZEROS),
    same("zeros_relu", ["linear 8 16 0", "relu", "linear 16 4"], inputs=ZEROS),
    same("zeros_norm", ["linear 8 16", "layer_norm 16", "linear 16 4"], inputs=ZEROS),
    same("denormal", ["linear 8 8", "tanh"], inputs=DENORMAL),
    same("denormal_returned", ["scale 1.0", {"outputs": [["scale 2.0"], ["linear 8 2"]]}], inputs=DENORMAL),
    same("pool_of_equal", ["max_pool 2", "conv 3 4 1", "mean_hw"], inputs=EQUAL_PIXELS),
    same("pool_of_relu", ["conv 3 4 3 1 1", "relu", "max_pool 2", "mean_hw"], inputs=IMAGES),
    same("norm_of_constant_rows",
        [{"mul": [["first 1", "repeat 8"], ["scale 0.0", "add 1"]]}, "layer_norm 8", "linear 8 3"]),
]  # fmt: skip

MASKED = [
    same(f"masked_{name}", ["linear 8 8", "gram", f"causal 0 {value}", "softmax", "linear 6 3"], inputs=LONG)
    for name, value in [("infinity", "-inf"), ("lowest", "lowest"), ("1e9", "-1e9"), ("1e4", "-1e4"), ("100", "-100")]
]
MASKED += [
    same(
        "masked_by_where_or_sum",
        ["linear 8 8", "gram", "causal 0 -1e9", "softmax"],
        ["linear 8 8", "gram", "causal_added -1e9", "softmax"],
        LONG,
    ),
    same("masked_logits", [*BODY, "every 3 -1e9"]),
    same("masked_logits_lowest", [*BODY, "every 3 lowest"]),
    same("masked_logits_1e4", [*BODY, "every 3 -1e4"]),
    same("masked_infinite_logits", [*BODY, "every 3 -inf", "softmax"]),
    same("masked_by_a_tie", [*BODY, "tie -1e30"]),
    same("masked_by_a_tie_beside_1e10", [*BODY, "tie -1e9", "append 1e10"]),
    same("masked_by_a_tie_softmax", [*BODY, "tie -1e9", "softmax"]),
    same("beside_1e6", [*BODY, "append 1e6"]),
    same("beside_1e12", [*BODY, "append 1e12"]),
    same("beside_1e30", [*BODY, "append 1e30"]),
    same("large_row", [*BODY, "row 0 1e9"]),
    same("large_column", [*BODY, "column 2 1e9"]),
    same("masked_rows", ["linear 8 8", "gram", "causal -1 -1e9", "softmax"], inputs=LONG),
    same("mask_without_effect", ["linear 8 8", "gram", "causal 6", "softmax"], inputs=LONG),
    same("einsum_or_matmul", ["linear 8 8", "gram", "softmax"], ["linear 8 8", "gram_einsum", "softmax"], LONG),
]

SHAPES = [
    same("batch_20000", ["linear 4 8", "silu", "linear 8 2"], inputs={"x": "float32[20000,4]"}),
    same("batch_20000_standard", ["linear 4 8", "standard 1e-5"], inputs={"x": "float32[20000,4]"}),
    same("batch_20000_cumulated", ["linear 4 2", "cumsum 0"], inputs={"x": "float32[20000,4]"}),
    same("batch_of_one", BODY, inputs={"x": "float32[1,8]"}),
    same("length_one", ["linear 8 8", "gram", "causal", "softmax"], inputs={"x": "float32[2,1,8]"}),
    same("width_one", ["linear 1 1", "tanh", "linear 1 1"], inputs={"x": "float32[4,1]"}),
    same("wide", ["linear 2048 4", "tanh"], inputs={"x": "float32[2,2048]"}),
    same("deep_tanh", [step for _ in range(50) for step in ("linear 8 8", "tanh")], inputs={"x": "float32[4,8]"}),
    same("deep_residual", [{"plus": [["scale 1.0"], ["linear 8 8", "relu"]]}] * 24),
    same("deep_norms", [step for _ in range(24) for step in ("linear 8 8", "layer_norm 8", "relu")]),
    same("deep_functions", ["linear 8 8", *["sin", "scale 3"] * 50, "linear 8 2"], truth="chaos"),
    same(
        "logistic_map",
        ["linear 8 8", "sigmoid", "logistic 100", "linear 8 2"],
        truth="chaos",
    ),
]

WHOLE = [
    same("ids_passed_on", [{"outputs": [["scale 3"], ["embedding 20 8", "linear 8 2"]]}], inputs=IDS),
    same("ids_drawn_seldom", ["embedding 1000 8", "linear 8 2"], inputs={"x": "int32[2,3]<1000"}),
    same("one_id", ["embedding 20 8", "linear 8 2"], inputs={"x": "int32[2,3]<1"}),
    same("padded_ids", ["padded_embedding 20 8 3", "linear 8 2"], inputs=IDS),
    same("one_hot", ["one_hot 20", "linear 20 4"], ["one_hot 20", "linear 20 4"], IDS),
    same("bools", ["to_float", "linear 8 4"], inputs={"x": "bool[4,8]"}),
    same("positions_buffer", ["embedding 20 8", "positions 6 8 1", "linear 8 2"], inputs=IDS),
    same("positions", ["embedding 20 8", "positions 6 8", "linear 8 2"], inputs=IDS),
    same("unused", ["linear 8 8", "unused 8 8", "tanh"]),
    same("twice", ["linear 8 8", "tanh", "again linear0", "tanh", "again linear0"]),
    same(
        "float32_within",
        around("tanh"),
        around("tanh; cast32"),
        why="what is float32 on purpose is float64 in the high run",
    ),
    same("rounded_on_both", around("tanh; cast16")),
    same("prelu", ["linear 8 8", "prelu 8", "linear 8 2"]),
    same("rms_norm", ["linear 8 8", "rms_norm 8", "linear 8 2"]),
    same("constant", ["constant 8", "linear 8 2"]),
]

PICTURES = [
    ("convolutions", ["conv 3 4 3 1 1", "relu", "conv 4 6 3 2 1", "mean_hw"]),
    ("dilated", ["conv 3 4 3 1 2 1 2", "tanh", "mean_hw"]),
    ("strided", ["conv 3 4 1", "conv 4 8 3 2 0", "mean_hw"]),
    ("group_norm", ["conv 3 4 1", "group_norm 2 4", "mean_hw"]),
    ("batch_norm", ["conv 3 4 3", "batch_norm2d 4", "relu", "mean_hw"]),
    ("padded", ["conv 3 4 1", "pad_reflect 1", "pad_replicate 2", "pad 1 0.5", "mean_hw"]),
    ("pooled", ["conv 3 4 3 1 1", "avg_pool 2", "max_pool 2", "mean_hw"]),
    ("enlarged", ["conv 3 4 1", "nearest 2", "conv 4 2 3", "max_hw"]),
    ("flattened", ["conv 3 4 1", "flatten_chw", "scale 2.0"]),
]

FAR = [
    *(same(f"scale_{name}", BODY, inputs=scaled(scale)) for name, scale in SCALES),
    *(same(f"scale_{name}_linear", ["linear 8 16", "linear 16 4"], inputs=scaled(scale)) for name, scale in SCALES),
    *(
        same(f"scale_{name}_norm", ["linear 8 16", "layer_norm 16"], inputs=scaled(scale))
        for name, scale in SCALES
        if 1e-15 < scale < 1e15  # beyond, the square of float32 is not finite
    ),
]

THEMES: dict[str, list[Row]] = {
    "one function written in two ways": [
        same(f"way_{name}", around(torch), around(keras)) for name, torch, keras in WAYS
    ]
    + TOLD,
    "inputs of 1e-30 to 1e30": FAR,
    "saturation": [same(f"saturated_{name}", around(form)) for name, form in SATURATED],
    "cancellation": [same(f"cancelled_{name}", around(form)) for name, form in CANCELLED],
    "kinks": [same(f"kink_{name}", around(form)) for name, form in KINKS],
    "ties, zeros and denormal numbers": EXACT,
    "masks, and large values beside small ones": MASKED,
    "shapes and depth": SHAPES,
    "whole numbers, buffers and shared layers": WHOLE,
    "pictures": [same(f"picture_{name}", steps, inputs=IMAGES) for name, steps in PICTURES],
}
