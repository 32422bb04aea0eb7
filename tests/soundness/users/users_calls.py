"""Rows: plain calls, whose defaults, gradients, fast paths and modes are part of what is computed."""

from typing import Any, Literal

import numpy as np
from users_rows import NONE, Arrays, Row, floats

Truth = Literal["same", "differs"]
X = {"x": floats(8, 8)}
ATOMS = {"x": floats(8, 6)}
POINTS = {"points": floats(8, 2)}
PADDED = {"x": floats(4, 5, 8), "lengths": {"shape": [4], "dtype": "int64", "range": [1, 5]}}
TRAIN = {"learning_rate": 0.125, "steps": 3}


def _row(name: str, truth: Truth, why: str, torch: str, keras: str, inputs: Any = None, **rest: Any) -> Row:
    return Row(name, "calls", truth, why, inputs or X, torch, keras, **rest)


def unpacked(arrays: Arrays) -> list[np.ndarray]:
    """Keras's weights of torch's encoder layer, whose projections are packed."""
    of = {name.removeprefix("encoder.layers.0."): array for name, array in arrays.items()}
    packed = zip(*(np.split(of[f"self_attn.in_proj_{kind}"], 3) for kind in ("weight", "bias")), strict=True)
    projections = [array for weight, bias in packed for array in (weight.T, bias)]
    projections += [of["self_attn.out_proj.weight"].T, of["self_attn.out_proj.bias"]]
    rest = [of[f"{name}.{kind}"] for name in ("norm1", "linear1", "linear2", "norm2") for kind in ("weight", "bias")]
    return projections + [array.T for array in rest]


def _encoded(name: str, truth: Truth, why: str, torch: Any = NONE, keras: Any = NONE, **rest: Any) -> Row:
    return _row(
        name, truth, why, "encoded", "Encoded", PADDED, torch_kwargs=torch, keras_kwargs=keras, weights=unpacked, **rest
    )


FORWARD = {"backward": False}  # the models are not made for gradients in inference
FORCES = TRAIN | {"torch_loss": "energy_and_forces", "keras_loss": "of_energy"}
CALLS = [
    _row("default_training", "differs", "a call without arguments trains", "Centred", "Centred"),
    _row("default_inference", "same", "a call without arguments does not train", "Centred", "centred"),
    _row("default_within", "differs", "an inner layer's default is training=True", "Centred", "CentredWithin"),
    _row("default_within_said", "same", "the inner layer is told", "mlp", "never_centred"),
    _row("default_baked", "differs", "a functional model keeps training=True", "Centred", "centred_functional"),
    _row("default_baked_off", "differs", "fit overrides the training=False of the call that made the model", "mlp",
        "centred_functional", keras_kwargs={"baked": False}, train=TRAIN),
    _row("default_baked_predicted", "differs", "predict overrides training=True, torch centres always",
        "AlwaysCentred", "centred_functional", train=TRAIN),
    _row("option", "same", "options that are left out", "Optional", "Optional"),
    _row("option_default", "differs", "the option's default is another", "Optional", "OtherDefault"),
    _row("option_scale", "differs", "the factor's default is another", "Optional", "OtherScale"),
    _row("forces", "same", "forces by autograd.grad, called with gradients on", "energy", "energy", ATOMS, grads=True),
    _row("forces_within", "same", "forward switches gradients on itself", "energy_within", "energy", ATOMS,
        fields=FORWARD),
    _row("forces_sign", "differs", "forces are the gradient, not its negative", "energy", "energy", ATOMS, grads=True,
        keras_kwargs={"sign": 1.0}),
    _row("forces_mean", "differs", "forces of the mean energy", "energy_within", "energy", ATOMS,
        keras_kwargs={"mean": True}, fields=FORWARD),
    _row("forces_trained", "same", "a loss of energies and forces", "energy", "energy", ATOMS, grads=True,
        train=FORCES),
    _row("forces_trained_stopped", "differs", "no gradient goes through Keras's forces", "energy", "energy", ATOMS,
        grads=True, train=FORCES, keras_kwargs={"stopped": True}),
    _row("forces_alone", "same", "only forces are returned and trained", "ForcesAlone", "forces", ATOMS, grads=True,
        train=TRAIN),
    _row("forces_alone_mean", "differs", "forces of the mean energy, trained", "ForcesAlone", "forces",
        ATOMS, grads=True,
        train=TRAIN, keras_kwargs={"mean": True}, before=False),
    _row("equation", "same", "second derivatives in forward", "Heat", "Heat", POINTS),
    _row("equation_trained", "same", "second derivatives, trained", "Heat", "Heat", POINTS, train=TRAIN),
    _row("equation_squared", "differs", "the first derivative's square for the second", "Heat", "Heat", POINTS,
        keras_kwargs={"squared": True}),
    _encoded("encoder_padded", "differs", "in inference torch's fast path returns zeros in padding"),
    _encoded("encoder_pooled", "same", "what stands in padding is left out", {"pooled": True}, {"pooled": True}),
    _encoded("encoder_norm_first", "same", "no fast path", {"norm_first": True, "nested": False}, {"norm_first": True}),
    _encoded("encoder_padded_trained", "differs", "training has no fast path, the evaluation has", train=TRAIN,
        before=False),
    _encoded("encoder_pooled_trained", "same", "padding is left out, trained", {"pooled": True}, {"pooled": True},
        train=TRAIN),
    _row("gradless", "differs", "torch rounds where no gradients are needed", "Frugal", "mlp"),
    _row("gradless_alike", "same", "torch computes the same in another way", "Checkpointed", "mlp"),
    _row("gradless_trained", "same", "checkpoints in training", "Checkpointed", "mlp", train=TRAIN),
    _row("merged", "same", "eval() merges two weights", "Merging", "LowRank", fields=FORWARD),
    _row("merged_scale", "differs", "Keras does not scale the change", "Merging", "LowRank",
        keras_kwargs={"scale": 1.0}, fields=FORWARD),
    _row("hooked", "same", "a hook halves what Keras's call halves", "hooked", "Halved"),
    _row("hooked_there", "differs", "a hook halves what goes into torch's head", "hooked", "mlp"),
    _row("hooked_inputs", "same", "a hook doubles the inputs that Keras's call doubles", "doubled", "Doubled"),
    _row("hooked_inputs_there", "differs", "a hook doubles torch's inputs", "doubled", "mlp"),
    _row("in_place", "same", "torch changes its argument", "InPlace", "MeanTaken"),
    _row("wrapped", "same", "__call__ scales on both sides", "Wrapped", "Wrapped"),
    _row("wrapped_here", "differs", "Keras's __call__ scales", "mlp", "Wrapped"),
    _row("wrapped_trained", "differs", "Keras's __call__ scales, in fit as well", "mlp", "Wrapped", train=TRAIN,
        before=False),
]  # fmt: skip
