"""Optimizers that rows of the soundness table name: what both sides build from. Free of frameworks.

The fields are those of the field: learning rate, momentum, betas; `clip`: by the global norm; `excluded`: how many
of the parameters, from the last one, keep out of weight decay; `frozen`: likewise, out of the whole update. `every`,
`factor`: a schedule by steps; `skipped`: a step that is left out, from 0;
`decay_from`: the step from which on weights decay. `noise`: unseeded, in the reference alone,
from the step `noise_from`, on the last `noise_on` parameters. `low_rate`, `low_eps`: of runs below float64.
"""

from typing import Any

SGD: dict[str, Any] = {"kind": "sgd", "rate": 2**-5}
MOMENTUM = SGD | {"momentum": 0.9}
ADAM: dict[str, Any] = {"kind": "adam", "rate": 2**-7, "betas": (0.9, 0.999), "eps": 1e-8, "decay": 0.0}
ADAMW = ADAM | {"kind": "adamw", "decay": 0.01}


def at(config: dict[str, Any], high: bool) -> dict[str, Any]:
    """The fields of an optimizer in float64, or below it."""
    low = {name.removeprefix("low_"): value for name, value in config.items() if name.startswith("low_")}
    return config if high else config | low


OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": SGD,
    "sgd_percent": SGD | {"rate": 2**-5 * 1.01},
    "sgd_ppm": SGD | {"rate": 2**-5 * (1 + 1e-5)},
    "sgd_last_digit": SGD | {"rate": 2**-5 * (1 + 1e-8)},
    "sgd_large": SGD | {"rate": 1.0},
    "sgd_exploding": SGD | {"rate": 64.0},
    "sgd_exploding_decay": SGD | {"rate": 64.0, "decay": 0.1},
    "sgd_exploding_momentum": MOMENTUM | {"rate": 64.0},
    "sgd_infinite": SGD | {"rate": 1e30},
    "sgd_infinite_momentum": MOMENTUM | {"rate": 1e30},
    "sgd_tiny": SGD | {"rate": 1e-7},
    "sgd_tiny_decay": SGD | {"rate": 1e-7, "decay": 0.01},
    "sgd_decay": SGD | {"decay": 0.01},
    "sgd_decay_11": SGD | {"decay": 0.011},
    "sgd_decay_no_bias": SGD | {"decay": 0.01, "excluded": 1},
    "sgd_frozen": SGD | {"frozen": 1},
    "sgd_noise": SGD | {"noise": 1e-3},
    "sgd_noise_small": SGD | {"noise": 1e-9},
    "sgd_noise_late": SGD | {"noise": 1e-3, "noise_from": 2},
    "sgd_noise_last": SGD | {"noise": 1e-3, "noise_on": 1},
    "adam_noise_late": ADAM | {"noise": 1e-3, "noise_from": 2},
    "sgd_halted": SGD | {"every": 3, "factor": 0.0},
    "sgd_skipping": SGD | {"skipped": 1},
    "sgd_low_rate": SGD | {"low_rate": 2**-5 * 1.01},
    "sgd_low_rate_other": SGD | {"low_rate": 2**-5 * 0.99},
    "adam_low_eps": ADAM | {"low_eps": 1e-3},
    "sgd_large_decay": SGD | {"rate": 1.0, "decay": 0.01},
    "sgd_large_late_decay": SGD | {"rate": 1.0, "decay": 0.01, "decay_from": 24},
    "sgd_large_halved": SGD | {"rate": 1.0, "every": 20, "factor": 0.5},
    "momentum_large_89": SGD | {"rate": 0.5, "momentum": 0.89},
    "sgd_clip": SGD | {"clip": 0.1},
    "sgd_clip_other": SGD | {"clip": 0.11},
    "sgd_clip_each": SGD | {"clip_each": 0.1},
    "sgd_clip_value": SGD | {"clip_value": 0.01},
    "sgd_clip_idle": SGD | {"clip": 1e6},
    "sgd_schedule": SGD | {"every": 2, "factor": 0.5},
    "sgd_schedule_early": SGD | {"every": 1, "factor": 0.5},
    "sgd_schedule_other": SGD | {"every": 2, "factor": 0.51},
    "sgd_schedule_3": SGD | {"every": 3, "factor": 0.5},
    "momentum": MOMENTUM,
    "momentum_large": MOMENTUM | {"rate": 0.5},
    "momentum_noise": MOMENTUM | {"noise": 1e-3},
    "momentum_89": SGD | {"momentum": 0.89},
    "momentum_decay": MOMENTUM | {"decay": 0.01},
    "nesterov": MOMENTUM | {"nesterov": True},
    "momentum_schedule": MOMENTUM | {"every": 1, "factor": 0.5},
    "momentum_schedule_folded": MOMENTUM | {"every": 1, "factor": 0.5, "kind": "keras_sgd"},
    "adam": ADAM,
    "adam_noise": ADAM | {"noise": 1e-3},
    "adam_beta1": ADAM | {"betas": (0.89, 0.999)},
    "adam_beta2": ADAM | {"betas": (0.9, 0.99)},
    "adam_eps": ADAM | {"eps": 1e-7},
    "adam_eps_large": ADAM | {"eps": 1e-3},
    "adam_eps_hat": ADAM | {"kind": "keras_adam"},
    "adam_l2": ADAM | {"decay": 0.01},
    "adam_exploding": ADAM | {"rate": 50.0},
    "adam_large": ADAM | {"rate": 0.25},
    "adam_percent": ADAM | {"rate": 2**-7 * 1.01},
    "adam_clip": ADAM | {"clip": 0.1},
    "adamw": ADAMW,
    "adamw_noise": ADAMW | {"noise": 1e-3},
    "adamw_004": ADAMW | {"decay": 0.004},
    "adamw_no_bias": ADAMW | {"excluded": 1},
    "adamw_zero": ADAMW | {"decay": 0.0},
    "adamw_large_decay": ADAMW | {"decay": 0.5},
}
