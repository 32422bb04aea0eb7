"""Cases of sizes that few numbers of devices divide."""

from parity.config import cases
from parity.config.schema import Case

SMALL = {
    "linear_stack": {"model": {"width": 64, "layers": 5}, "data": {"batch": 13}},
    "simple_block": {"model": {"hidden": 19}, "data": {"batch": 13}},
    "two_linear": {"data": {"batch": 13}},
    "residual_block": {"model": {"out_channels": 5}, "data": {"batch": 13, "size": 8}},
    "transformer": {
        "model": {"vocabulary": 50, "d_model": 12, "heads": 2, "feed_forward": 15, "causal": True},
        "data": {"batch": 13, "length": 5},
    },
}
TRAINING = {"steps": 2, "optimizer": {"kind": "sgd", "learning_rate": 0.1, "momentum": 0.9}}


def small(model: str, strategy: str, devices: int, changes: dict) -> Case:
    """A small case of a model under a strategy."""
    return cases.resolve(f"{model}/single", TRAINING, SMALL[model], {"strategy": strategy, "devices": devices}, changes)
