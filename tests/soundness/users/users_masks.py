"""Rows: masks that Keras's layers hand on, masks by arguments and defaults, what padding and the future may do."""

from typing import Any, Literal

import numpy as np
from users_rows import NONE, Arrays, Row, floats, ids

Truth = Literal["same", "differs"]
WORDS = {"ids": ids(6, 5, below=6)}
X = {"x": floats(3, 5, 8)}
MASKED = X | {"mask": {"shape": [3, 5], "dtype": "bool"}}
LENGTHS = {"x": floats(4, 5, 8), "lengths": {"shape": [4], "dtype": "int64", "range": [1, 6]}}
TRAIN = {"learning_rate": 0.25, "steps": 3}


def _row(
    name: str, truth: Truth, why: str, model: str, inputs: Any, torch: Any = NONE, keras: Any = NONE, **rest: Any
) -> Row:
    """`model`: both builders, or Keras's after torch's."""
    builders = (model.split() * 2)[:2]
    return Row(f"mask_{name}", "masks", truth, why, inputs, *builders, torch_kwargs=torch, keras_kwargs=keras, **rest)


def heads(arrays: Arrays) -> list[np.ndarray | None]:
    """Keras's weights of torch's attention, whose projections are packed: (out, in) is (in, heads, out of a head)."""
    packed = zip(*(np.split(arrays[f"attention.in_proj_{kind}"], 3) for kind in ("weight", "bias")), strict=True)
    projections = [each for weight, bias in packed for each in (weight.T.reshape(8, 2, 4), bias.reshape(2, 4))]
    out = arrays["attention.out_proj.weight"].T.reshape(2, 4, 8)
    return [arrays["embedding.weight"], *projections, out, arrays["attention.out_proj.bias"]]


def directions(arrays: Arrays) -> list[np.ndarray | None]:
    cells = [arrays[f"cell.weight_{kind}_l0{way}"].T for way in ("", "_reverse") for kind in ("ih", "hh")]
    return [*cells, arrays["head.weight"].T, arrays["head.bias"]]


OFF = {"mask_zero": False}
ALL = {"masked": False}
MASKS = [
    _row("mean", "same", "the embedding's mask reaches the mean", "words", WORDS),
    _row("mean_functional", "same", "in a functional model as well", "words words_functional", WORDS),
    _row("mean_trained", "same", "the embedding's mask reaches the mean, trained", "words", WORDS, train=TRAIN),
    _row("mean_of_all", "differs", "torch's mean is over padding as well", "words", WORDS, ALL),
    _row("mean_off", "differs", "mask_zero was forgotten", "words", WORDS, {}, OFF),
    _row("mean_off_both", "same", "both means are over padding as well", "words", WORDS, ALL, OFF),
    _row("mean_lost", "differs", "a function drops the mask", "words", WORDS, {}, {"lost": True}),
    _row("mean_lost_both", "same", "the mask is dropped, and torch has none", "words", WORDS, ALL, {"lost": True}),
    _row("filled_in", "differs", "Keras fills in a mask that nobody gave", "words filled_in", WORDS, ALL),
    _row("filled_in_both", "same", "Keras fills in the mask that torch has", "words filled_in", WORDS),
    _row("filled_in_off", "same", "there is no mask to fill in", "words filled_in", WORDS, ALL, OFF),
    _row("classed", "same", "compute_mask makes room for another word", "classed", WORDS),
    _row("classed_lost", "differs", "a layer without compute_mask drops the mask", "classed", WORDS, {}, ALL),
    _row("classed_lost_both", "same", "the mask is dropped, and torch has none", "classed", WORDS, ALL, ALL),
    _row("padding_row", "differs", "padding_idx is not trained", "padded", WORDS, train=TRAIN),
    _row("padding_row_untrained", "same", "padding's row is a row as any other, before training", "padded", WORDS,
        fields={"backward": False}),
    _row("padding_row_pooled", "same", "nobody trains padding's row, as it is left out", "padded", WORDS,
        {"pooled": True}, {"pooled": True}, train=TRAIN),
    _row("causal", "same", "a query sees itself and the past", "attention", X),
    _row("causal_without_itself", "differs", "a query does not see itself", "attention", X, {}, {"future": -1}),
    _row("causal_ahead", "differs", "a query sees one step ahead", "attention", X, {}, {"future": 1}),
    _row("causal_default", "same", "the mask is a default argument", "attention by_default", X),
    _row("causal_default_transposed", "differs", "the default is transposed", "attention by_transposed_default", X),
    _row("causal_default_none", "differs", "the default is no mask", "attention by_no_default", X),
    _row("no_default", "same", "no mask on either side", "attention by_no_default", X, {"future": 10}),
    _row("band", "same", "a window into the past", "attention", X, {"past": 2}, {"past": 2}),
    _row("band_wide", "differs", "the window is one wider", "attention", X, {"past": 2}, {"past": 3}),
    _row("keys", "same", "True is what may be seen", "keyed", MASKED),
    _row("keys_inverted", "differs", "True is what may not be seen", "keyed", MASKED, {}, {"inverted": True}),
    _row("softmax", "same", "Keras's softmax adds a large number, torch minus infinity", "selfish", MASKED),
    _row("heads", "differs", "Keras masks padding's own queries as well", "heads", WORDS, weights=heads),
    _row("heads_pooled", "same", "what padding's own queries see is left out", "heads", WORDS, {"pooled": True},
        {"pooled": True}, weights=heads),
    _row("heads_off", "differs", "mask_zero was forgotten", "heads", WORDS, {"pooled": True}, {"pooled": True} | OFF,
        weights=heads),
    _row("heads_causal", "same", "use_causal_mask", "heads", WORDS, {"padding": False, "causal": True},
        {"causal": True} | OFF, weights=heads),
    _row("heads_causal_missing", "differs", "use_causal_mask is left out", "heads", WORDS, {"padding": False,
        "causal": True}, OFF, weights=heads),
    _row("heads_unmasked", "same", "no mask at all", "heads", WORDS, {"padding": False}, OFF, weights=heads),
    _row("heads_unasked", "differs", "Keras finds a mask that torch is not given", "heads", WORDS, {"padding": False},
        {}, weights=heads),
    _row("recurrent", "same", "padding leaves the state as it is", "recurrent", WORDS),
    _row("recurrent_trained", "same", "padding leaves the state as it is, trained", "recurrent", WORDS, train=TRAIN),
    _row("recurrent_off", "differs", "mask_zero was forgotten", "recurrent", WORDS, {}, OFF),
    _row("recurrent_unasked", "differs", "Keras finds a mask that torch has not", "recurrent", WORDS,
        {"skipping": False}),
    _row("recurrent_lost", "differs", "the mask is lost before the cell", "recurrent recurrent_lost", WORDS),
    _row("recurrent_lost_both", "same", "the mask is lost, and torch has none", "recurrent recurrent_lost", WORDS,
        {"skipping": False}),
    _row("both", "same", "a packed sequence and a mask", "both", LENGTHS, weights=directions),
    _row("both_unpacked", "differs", "torch runs backwards through padding", "both", LENGTHS, {"packed": False},
        weights=directions),
    _row("both_off", "same", "both run through padding", "both", LENGTHS, {"packed": False}, ALL, weights=directions),
    _row("norm", "differs", "Keras's norm takes its statistics without padding", "normed", WORDS, train=TRAIN),
    _row("norm_both", "same", "both take them without padding", "normed", WORDS, {"masked": True}, train=TRAIN),
    _row("norm_off", "same", "both take them with padding", "normed", WORDS, {}, OFF, train=TRAIN),
    _row("chances", "same", "chances are masked and add up to one again", "multiplied", X),
    _row("chances_left", "differs", "masked chances do not add up to one", "multiplied", X, {}, {"renormed": False}),
    _row("chances_or_scores", "same", "masked chances that add up to one are masked scores", "attention multiplied", X),
    _row("dotted", "same", "Keras's attention finds both masks", "dotted", WORDS),
    _row("dotted_unasked", "differs", "Keras's attention finds masks that torch has not", "dotted", WORDS, ALL),
    _row("dotted_off", "same", "no masks", "dotted", WORDS, ALL, OFF),
]  # fmt: skip
