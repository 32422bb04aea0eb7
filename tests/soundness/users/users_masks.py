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
    _row("mean", "same", "the embedding's mask reaches the mean", "Words", WORDS),
    _row("mean_functional", "same", "in a functional model as well", "Words words_functional", WORDS),
    _row("mean_trained", "same", "the embedding's mask reaches the mean, trained", "Words", WORDS, train=TRAIN),
    _row("mean_of_all", "differs", "torch's mean is over padding as well", "Words", WORDS, ALL),
    _row("mean_off", "differs", "mask_zero was forgotten", "Words", WORDS, {}, OFF),
    _row("mean_off_both", "same", "both means are over padding as well", "Words", WORDS, ALL, OFF),
    _row("mean_lost", "differs", "a function drops the mask", "Words", WORDS, {}, {"lost": True}),
    _row("mean_lost_both", "same", "the mask is dropped, and torch has none", "Words", WORDS, ALL, {"lost": True}),
    _row("filled_in", "differs", "Keras fills in a mask that nobody gave", "Words FilledIn", WORDS, ALL),
    _row("filled_in_both", "same", "Keras fills in the mask that torch has", "Words FilledIn", WORDS),
    _row("filled_in_off", "same", "there is no mask to fill in", "Words FilledIn", WORDS, ALL, OFF),
    _row("classed", "same", "compute_mask makes room for another word", "Classed", WORDS),
    _row("classed_lost", "differs", "a layer without compute_mask drops the mask", "Classed", WORDS, {}, ALL),
    _row("classed_lost_both", "same", "the mask is dropped, and torch has none", "Classed", WORDS, ALL, ALL),
    _row("padding_row", "differs", "padding_idx is not trained", "Padded", WORDS, train=TRAIN),
    _row("padding_row_untrained", "same", "padding's row is a row as any other, before training", "Padded", WORDS,
        fields={"backward": False}),
    _row("padding_row_pooled", "same", "nobody trains padding's row, as it is left out", "Padded", WORDS,
        {"pooled": True}, {"pooled": True}, train=TRAIN),
    _row("causal", "same", "a query sees itself and the past", "Attention", X),
    _row("causal_without_itself", "differs", "a query does not see itself", "Attention", X, {}, {"future": -1}),
    _row("causal_ahead", "differs", "a query sees one step ahead", "Attention", X, {}, {"future": 1}),
    _row("causal_default", "same", "the mask is a default argument", "Attention ByDefault", X),
    _row("causal_default_transposed", "differs", "the default is transposed", "Attention ByTransposedDefault", X),
    _row("causal_default_none", "differs", "the default is no mask", "Attention ByNoDefault", X),
    _row("no_default", "same", "no mask on either side", "Attention ByNoDefault", X, {"future": 10}),
    _row("band", "same", "a window into the past", "Attention", X, {"past": 2}, {"past": 2}),
    _row("band_wide", "differs", "the window is one wider", "Attention", X, {"past": 2}, {"past": 3}),
    _row("keys", "same", "True is what may be seen", "Keyed", MASKED),
    _row("keys_inverted", "differs", "True is what may not be seen", "Keyed", MASKED, {}, {"inverted": True}),
    _row("softmax", "same", "Keras's softmax adds a large number, torch minus infinity", "Selfish", MASKED),
    _row("heads", "differs", "Keras masks padding's own queries as well", "Heads", WORDS, weights=heads),
    _row("heads_pooled", "same", "what padding's own queries see is left out", "Heads", WORDS, {"pooled": True},
        {"pooled": True}, weights=heads),
    _row("heads_off", "differs", "mask_zero was forgotten", "Heads", WORDS, {"pooled": True}, {"pooled": True} | OFF,
        weights=heads),
    _row("heads_causal", "same", "use_causal_mask", "Heads", WORDS, {"padding": False, "causal": True},
        {"causal": True} | OFF, weights=heads),
    _row("heads_causal_missing", "differs", "use_causal_mask is left out", "Heads", WORDS, {"padding": False,
        "causal": True}, OFF, weights=heads),
    _row("heads_unmasked", "same", "no mask at all", "Heads", WORDS, {"padding": False}, OFF, weights=heads),
    _row("heads_unasked", "differs", "Keras finds a mask that torch is not given", "Heads", WORDS, {"padding": False},
        {}, weights=heads),
    _row("recurrent", "same", "padding leaves the state as it is", "Recurrent recurrent", WORDS),
    _row("recurrent_trained", "same", "padding leaves the state as it is, trained", "Recurrent recurrent", WORDS,
        train=TRAIN),
    _row("recurrent_off", "differs", "mask_zero was forgotten", "Recurrent recurrent", WORDS, {}, OFF),
    _row("recurrent_unasked", "differs", "Keras finds a mask that torch has not", "Recurrent recurrent", WORDS,
        {"skipping": False}),
    _row("recurrent_lost", "differs", "the mask is lost before the cell", "Recurrent LostRecurrent", WORDS),
    _row("recurrent_lost_both", "same", "the mask is lost, and torch has none", "Recurrent LostRecurrent", WORDS,
        {"skipping": False}),
    _row("both", "same", "a packed sequence and a mask", "Both", LENGTHS, weights=directions),
    _row("both_unpacked", "differs", "torch runs backwards through padding", "Both", LENGTHS, {"packed": False},
        weights=directions),
    _row("both_off", "same", "both run through padding", "Both", LENGTHS, {"packed": False}, ALL, weights=directions),
    _row("norm", "differs", "Keras's norm takes its statistics without padding", "Normed", WORDS, train=TRAIN),
    _row("norm_both", "same", "both take them without padding", "Normed", WORDS, {"masked": True}, train=TRAIN),
    _row("norm_off", "same", "both take them with padding", "Normed", WORDS, {}, OFF, train=TRAIN),
    _row("chances", "same", "chances are masked and add up to one again", "Multiplied", X),
    _row("chances_left", "differs", "masked chances do not add up to one", "Multiplied", X, {}, {"renormed": False}),
    _row("chances_or_scores", "same", "masked chances that add up to one are masked scores", "Attention Multiplied", X),
    _row("dotted", "same", "Keras's attention finds both masks", "Dotted", WORDS),
    _row("dotted_unasked", "differs", "Keras's attention finds masks that torch has not", "Dotted", WORDS, ALL),
    _row("dotted_off", "same", "no masks", "Dotted", WORDS, ALL, OFF),
]  # fmt: skip
