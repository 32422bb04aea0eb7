"""Ports whose outputs differ from the reference's on the very inputs: hidden beside large values, in few places."""

import itertools

import numpy as np
from rows import IDS, IMAGES, LONG, Row, around, differs, scaled

BODY = ["linear 8 16", "tanh", "linear 16 8"]
WIDE = {"x": "float32[20000,4]"}


def behind(fault: str, *hiding: str) -> tuple[list[str], list[str]]:
    """The body, wrong on Keras's side, and then what hides it."""
    return [*BODY, *hiding], [*BODY, fault, *hiding]


# What is wrong, and beside which large values.
FAULTS = {"scaled": "scale 1.001", "shifted": "add 3.6", "off": "add 0.001", "column": "column 5 1.01"}
HIDING = {
    "lowest": ["every 3 lowest"],
    "1e9": ["every 3 -1e9"],
    "1e4": ["every 7 -1e4"],
    "million": ["append 1e6"],
    "1e12": ["append 1e12"],
    "1e30": ["append 1e30"],
    "one": ["nudge 17 1e8"],
    "tie": ["tie -1e30"],
    "tie_1e9": ["tie -1e9"],
    "tie_1e10": ["tie -1e9", "append 1e10"],
}
HIDDEN = [
    differs(f"hidden_{fault}_beside_{large}", *behind(FAULTS[fault], *HIDING[large]))
    for fault, large in itertools.product(FAULTS, HIDING)
    if fault in ("shifted", "off") or large in ("lowest", "1e9", "1e12")
]

# Large values within: what follows sees the small ones alone.
WITHIN = [
    differs("masked_softmax_scaled", ["linear 8 8", "gram", "causal 0 lowest", "softmax", "sum 1"],
        ["linear 8 8", "gram", "causal 0 lowest", "scale 1.001", "softmax", "sum 1"], LONG),
    differs("masked_logits_returned", [{"outputs": [["linear 8 8", "gram", "causal 0 -1e9"], ["linear 8 3"]]}],
        [{"outputs": [["linear 8 8", "gram", "scale 1.0001", "causal 0 -1e9"], ["linear 8 3"]]}], LONG),
    differs("bias_of_1e6", [{"concat": [["linear 8 4"], ["linear 8 4", "add 1e6"]]}],
        [{"concat": [["linear 8 4", "scale 1.0001"], ["linear 8 4", "add 1e6"]]}]),
    differs("time_stamps", [{"concat": [["tanh", "linear 8 4"], ["scale 0.0", "add 1.7e9"]]}],
        [{"concat": [["tanh", "linear 8 4", "add 0.01"], ["scale 0.0", "add 1.7e9"]]}]),
    differs("exponents", ["linear 8 8", "scale 20", "exp"], ["linear 8 8", "scale 20", "exp", "add 0.001"]),
    differs("small_of_exponents", ["linear 8 8", "scale 8", "exp"],
        ["linear 8 8", "scale 8", "clip -20 20", "exp", "add 1e-6"]),
    differs("powers", ["linear 8 8", "scale 4", "power 9"], ["linear 8 8", "scale 4", "power 9", "add 1e-4"]),
    differs("proportional_to_large", ["linear 8 8", {"plus": [["scale 1.0"], ["every 3 1e9"]]}],
        ["linear 8 8", {"plus": [["scale 1.0"], ["every 3 1e9"]]}, "add 0.001"]),
    differs("cumulated", ["square", "add 100", "cumsum 0"], ["square", "add 100", "cumsum 0", "add 1e-3"],
        scaled(1.0, 64, 8)),
]  # fmt: skip

# Small elements that no rounding of the large ones reaches.
SMALL = [
    differs("tail_of_softmax", [*around("tanh"), "column 3 40", "softmax"],
        [*around("tanh"), "column 3 40", "softmax", "column 3 1.01"]),
    differs("column_of_1e-20", [*BODY, "column 3 1e-20"], [*BODY, "column 3 2e-20"]),
    differs("column_of_1e-6", [*BODY, "column 3 1e-6"], [*BODY, "column 3 1e-6", "column 3 1.01"]),
    differs("row_of_1e-9", [*BODY, "row 3 1e-9"], [*BODY, "row 3 1.1e-9"]),
    differs("probability_of_masked", ["linear 8 8", "column 2 0.0", "add 1.0", "column 2 -30", "softmax"],
        ["linear 8 8", "column 2 0.0", "add 1.0", "column 2 -30.1", "softmax"]),
    differs("denormal_doubled", ["linear 8 8"], ["linear 8 8", "scale 2.0"], scaled(1e-39)),
    differs("scale_e-30_doubled", ["linear 8 8 0"], ["linear 8 8 0", "scale 2.0"], scaled(1e-30)),
    differs("scale_e30_slightly", ["linear 8 8 0"], ["linear 8 8 0", "scale 1.00001"], scaled(1e30)),
    differs("small_gradient_column", [*BODY, "column 3 1e-9"],
        ["linear 8 16", "tanh", "linear 16 8", "column 3 1.001e-9"]),
]  # fmt: skip

# Rounding, or what float32 leaves, is large: float64 tells them apart all the same.
CONDITIONED = [
    *(
        differs(
            f"jumps_of_{jump}_hide",
            ["linear 4 8", {"plus": [["scale 10", "floor", f"scale {jump}"], ["sin"]]}],
            ["linear 4 8", {"plus": [["scale 10", "floor", f"scale {jump}"], ["sin", "scale 1.0001"]]}],
            WIDE,
        )
        for jump in (30, 1000)
    ),
    differs("rounded_within", around("tanh; cast16"), around("tanh; cast16; scale 1.0001")),
    differs("ill_conditioned", ["linear 8 8", "scale 1e7", "sin"],
        ["linear 8 8", "scale 1e7", "sin", "scale 1.0000003"], truth="subprecision"),
    differs("cancelled", ["linear 8 8", "add 1e8", "centred"], ["linear 8 8", "add 1e8", "centred", "scale 1.000001"],
        truth="subprecision"),
    differs("cancelled_visibly", ["linear 8 8", "add 1e8", "centred"],
        ["linear 8 8", "add 1e8", "centred", "scale 1.01"]),
    differs("cancelled_1e4", ["linear 8 8", "add 1e4", "centred"],
        ["linear 8 8", "add 1e4", "centred", "scale 1.0001"]),
]  # fmt: skip

# Wrong in few places of many.
FEW = [
    differs("one_of_160000", ["linear 4 8"], ["linear 4 8", "nudge -1 0.001"], WIDE),
    differs("one_small_of_160000", ["linear 4 8"], ["linear 4 8", "nudge 77777 1e-5"], WIDE),
    differs("one_row_of_20000", ["linear 4 8"], ["linear 4 8", "row -1 1.001"], WIDE),
    differs("one_row_of_20000_slightly", ["linear 4 8"], ["linear 4 8", "row 12345 1.00001"], WIDE),
    differs("one_row_negated", ["linear 4 8", "tanh"], ["linear 4 8", "tanh", "row 19999 -1"], WIDE),
    differs("first_row", around("tanh"), [*around("tanh"), "row 0 1.0001"]),
    differs("last_column", around("tanh"), [*around("tanh"), "column -1 1.0001"]),
    differs(
        "large_row_hides_others",
        ["linear 8 8", "row 0 1e9"],
        ["linear 8 8", "row 0 1e9", "row 3 1.001"],
    ),
    differs("one_element", around("tanh"), [*around("tanh"), "nudge 0 1e-4"]),
]

# Constants and forms of functions.
FORMS = [
    ("gelu_forms", "gelu_exact", "gelu_tanh"),
    ("gelu_forms_back", "gelu_tanh", "gelu_exact"),
    ("gelu_quick", "gelu_exact", "gelu_quick"),
    ("silu_hard", "silu", "hard_swish"),
    ("sigmoid_hard", "hard_sigmoid", "hard_sigmoid_old"),
    ("elu_alpha", "elu 1.0", "elu 1.0001"),
    ("elu_selu", "elu", "selu"),
    ("celu_alpha", "celu 1.0", "celu 0.99"),
    ("leaky_slope", "leaky 0.01", "leaky 0.0101"),
    ("leaky_at_zero_slope", "relu", "leaky 1e-4"),
    ("relu6_reached", "scale 4; relu", "scale 4; relu6"),
    ("hardtanh_wide", "scale 4; hardtanh", "scale 4; clip -1.001 1.001"),
    ("clip_of_few", "scale 3; clip -20 20", "scale 3; clip -3 3"),
    ("softsign_tanh", "softsign", "tanh"),
    ("mish_silu", "mish", "silu"),
    ("softshrink_by", "softshrink 0.5", "softshrink 0.4999"),
    ("hardshrink_by", "scale 2; hardshrink 0.5", "scale 2; hardshrink 0.6"),
    ("glu_halves", "glu; double", "glu_swapped; double"),
    ("softmax_axis", "softmax -1", "softmax 0"),
    ("softmax_plus_one", "softmax", "softmax_plus_one"),
    ("softmax_temperature", "softmax", "scale 1.00002; softmax"),
    ("norm_eps", "standard 1e-5", "standard 1e-6"),
    ("norm_eps_slightly", "standard 1e-5", "standard 1.1e-5"),
    ("norm_eps_of_constant_rows", "scale 0.0001; standard 1e-5", "scale 0.0001; standard 2e-5"),
    ("l2_eps", "l2_normal 1e-6", "l2_normal 1e-3"),
    ("var_biased", "split_rows 4; var 1; repeat 4", "split_rows 4; var 0; repeat 4"),
    ("std_biased", "split_rows 4; std 1; repeat 4", "split_rows 4; std 0; repeat 4"),
    ("roll_by_one", "roll 1", "roll 2"),
    ("roll_axis", "roll 1 -1", "roll 1 0"),
    ("reversed_batch", "tanh", "tanh; reverse 0"),
    ("cumsum_exclusive", "cumsum", "cumsum_exclusive"),
    ("repeat_or_tile", "first 8; repeat 2", "first 8; tile 2"),
    ("median_upper", "split_rows 4; median; repeat 4", "split_rows 4; upper_median; repeat 4"),
    ("top_or_first", "top 8; double", "first 8; double"),
    ("ascending", "sort", "descending"),
    ("modulo_sign", "scale 3; modulo 2.0", "scale 3; fmod 2.0"),
    ("threshold_at", "threshold 0.1 0.0", "threshold 0.1 0.1"),
    ("log_of_one_plus", "square; log1p", "square; log"),
    ("negative_zero", "relu; add 1e-3; reciprocal; scale 1e-3", "relu; add 1.001e-3; reciprocal; scale 1e-3"),
    ("square_or_abs", "abs", "square"),
    ("sum_or_mean_axis", "split_rows 4; mean -1; repeat 4", "split_rows 4; mean -2; repeat 4"),
    ("masked_few", "tanh; every 50 0.0", "tanh; every 51 0.0"),
    ("inverse_root", "square; add 1e-3; rsqrt", "square; add 1.01e-3; rsqrt"),
]

# PairContext, ties and whole numbers: where rounding rules part.
HALVES = {"x": np.array([[0.5, 1.5, 2.5, -0.5, -1.5, 3.25, 0.75, -2.5]] * 4, np.float32)}
WHOLE = [
    differs("round_half_up", ["round", "linear 8 4"], ["half_up", "linear 8 4"], HALVES),
    differs("floor_or_trunc", ["floor", "linear 8 4"], ["trunc", "linear 8 4"], HALVES),
    differs("argmax_argmin", ["linear 8 8", "argmax"], ["linear 8 8", "argmin"]),
    differs(
        "one_id_of_many",
        [{"outputs": [["scale 2"], ["embedding 20 8"]]}],
        [{"outputs": [["scale 2", "nudge_whole 17"], ["embedding 20 8"]]}],
        IDS,
    ),
    differs("ids_shifted", ["embedding 21 8"], ["add 1", "embedding 21 8"], IDS),
    differs("one_hot_shifted", ["one_hot 21", "linear 21 4"], ["add 1", "one_hot 21", "linear 21 4"], IDS),
    differs("ids_reversed", ["embedding 20 8", "positions 6 8"], ["reverse", "embedding 20 8", "positions 6 8"], IDS),
    differs("positions_from_one", ["embedding 20 8", "positions 6 8"], ["embedding 20 8", "positions 6 8 0 1"], IDS),
    differs("positions_left_out", ["linear 8 8", "positions 6 8"], ["linear 8 8"], LONG),
]

ATTENTION = [
    differs("mask_off_by_one", ["linear 8 8", "gram", "causal 0", "softmax"],
        ["linear 8 8", "gram", "causal 1", "softmax"], LONG),
    differs("mask_small", ["linear 8 8", "gram", "causal", "softmax"], ["linear 8 8", "gram", "causal 0 -5", "softmax"],
        LONG),
    differs("attention_unscaled", ["linear 8 8", "gram", "softmax"], ["linear 8 8", "gram_unscaled", "softmax"], LONG),
    differs("attention_axis", ["linear 8 8", "gram", "causal", "softmax"],
        ["linear 8 8", "gram", "causal", "swap", "softmax"], LONG),
    differs("axis_of_attention", ["linear 8 8", "gram", "softmax -1"], ["linear 8 8", "gram", "softmax -2"], LONG),
    differs("mask_left_out", ["linear 8 8", "gram", "causal", "softmax"], ["linear 8 8", "gram", "softmax"], LONG),
]  # fmt: skip

PICTURE = ["conv 3 4 3 1 1", "tanh"]
END = ["conv 4 6 3 1 1", "mean_hw"]


def picture(name: str, torch: str, keras: str, **rest) -> Row:
    steps = [[*PICTURE, *(form.split("; ") if form else []), *END] for form in (torch, keras)]
    return differs(f"image_{name}", *steps, IMAGES, **rest)


IMAGE = [
    picture("pools", "max_pool 2", "avg_pool 2"),
    picture("crop", "crop_top 1", "crop_bottom 1"),
    picture("stride_start", "every_other 0", "every_other 1"),
    picture("reflect", "pad_reflect 1", "pad_symmetric 1"),
    picture("replicate", "pad_replicate 1", "pad_reflect 1"),
    picture("zeros_or_ones", "pad 1 0.0", "pad 1 0.01"),
    picture("odd_pool", "pad 1; crop_top 1; avg_pool 2", "pad 1; crop_top 1; avg_pool_same 2; scale 1.0001"),
    picture("flipped", "", "flip_w; flip_h"),
    picture("transposed", "", "transpose_hw"),
    picture("one_pixel", "", "nudge 100 0.001"),
    differs(
        "image_flatten", [*PICTURE, "flatten_chw", "every 9 0.0"], [*PICTURE, "flatten_hwc", "every 9 0.0"], IMAGES
    ),
    differs("dilated", ["conv 3 4 3 1 2 1 2", *END], ["conv 3 4 3 1 1 1 1", *END], IMAGES),
    differs(
        "group_norm_groups", ["conv 3 4 1", "group_norm 2 4", *END], ["conv 3 4 1", "group_norm 4 4", *END], IMAGES
    ),
    differs("max_or_mean", ["conv 3 4 3", "max_hw"], ["conv 3 4 3", "mean_hw"], IMAGES),
]

# float32 cannot see these: a note has to be there all the same.
UNSEEN = [
    differs("unseen_constant", around("tanh; scale 0.1"), around("tanh; scale 0.10000000149011612"),
        truth="subprecision"),
    differs("unseen_scale", around("tanh"), around("tanh; scale 1.00000001"), truth="subprecision"),
    differs("unseen_eps", around("standard 1e-5"), around("standard 1.000001e-5"), truth="subprecision"),
    differs("unseen_shift", around("tanh"), around("tanh; add 1e-10"), truth="subprecision"),
    differs("softplus_threshold", around("scale 30; softplus"), around("scale 30; softplus_everywhere"),
        truth="subprecision"),
    differs("unseen_branch", around("tanh"), [*around("tanh"), {"plus": [["scale 1.0"], ["sin", "scale 1e-9"]]}],
        truth="subprecision"),
    differs("unseen_row", ["linear 4 8"], ["linear 4 8", "row 7 1.00000002"], WIDE, truth="subprecision"),
]  # fmt: skip

THEMES: dict[str, list[Row]] = {
    "small values hidden beside large ones": [*HIDDEN, *WITHIN],
    "small elements": SMALL,
    "ill-conditioned": CONDITIONED,
    "wrong in few elements of many": FEW,
    "forms and constants of functions": [differs(name, around(torch), around(keras)) for name, torch, keras in FORMS],
    "whole numbers, ties and positions": WHOLE,
    "attention and its masks": ATTENTION,
    "images": IMAGE,
    "what float32 cannot see": UNSEEN,
}
