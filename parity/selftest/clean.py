"""Draw random cases without a fault, on which nothing must be found; hypothesis draws them."""

from typing import Any

import msgspec
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st

from parity.config import cases
from parity.config.devices import obstacle
from parity.config.schema import Case
from parity.core.errors import UsageError
from parity.data.batches import Dataset

Draw = Any  # the function that hypothesis passes to a composite strategy; it has no public type
LONG = 50  # steps of a long training
SOURCES = {"residual_block": "photographs", "simple_block": "diabetes", "two_linear": "diabetes"}


def random_cases(count: int, number: int = 0) -> list[Case]:
    """Return up to `count` random cases, the same for a `number`, sorted so that neighbours can share processes."""
    drawn: dict[bytes, Case] = {}

    @seed(number)
    @settings(
        max_examples=2 * count,  # since some cases are drawn twice
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(_cases())
    def draw(case: Case) -> None:
        try:
            Dataset(case)
        except UsageError:  # the data source does not fit the model and its loss
            assume(False)
        drawn[msgspec.json.encode(case)] = case

    draw()
    return sorted(list(drawn.values())[:count], key=lambda case: (case.devices, case.strategy, case.name))


@st.composite
def _cases(draw: Draw) -> Case:
    """Draw a case: its sizes, shapes and scales, seed, optimizer, strategy and length of training."""
    name = draw(st.sampled_from([name for name in cases.names() if "workers" not in name]))
    model = name.partition("/")[0]
    batch = draw(st.sampled_from([1, 2, 5, 8, 12, 13, 24]))
    table = {
        "seed": draw(st.integers(0, 10_000)),
        "steps": draw(st.sampled_from([1, 2, 3, 5, 5, LONG])),
        "devices": draw(st.sampled_from([2, 2, 3])),
        "model": _model(draw, model),
        "data": {"batch": batch, "source": "synthetic"},
    }
    if model in SOURCES:
        table["data"]["source"] = draw(st.sampled_from(["synthetic", SOURCES[model]]))
    if model != "transformer":
        table["data"]["scale"] = draw(st.sampled_from([2.0**-10, 0.5, 1.0, 1.0, 8.0]))
    if model == "residual_block":
        table["data"]["size"] = draw(st.sampled_from([4, 7, 8]))
    if draw(st.booleans()):
        kind = draw(st.sampled_from(["sgd", "adam", "adamw"]))
        rate = draw(st.sampled_from([2.0**-13, 1e-3, 0.01]))
        table["optimizer"] = {"kind": kind, "learning_rate": rate, "weight_decay": draw(st.sampled_from([0.0, 0.01]))}
        if kind == "sgd":
            table["optimizer"]["momentum"] = draw(st.sampled_from([0.0, 0.9]))
    if model not in ("transformer", "residual_block") and draw(st.booleans()):
        table["loss"] = {"kind": "mse", "target": "zeros", "reduction": draw(st.sampled_from(["mean", "sum"]))}
    try:
        case = cases.resolve(name, table)
    except UsageError:  # the schema refuses this combination
        assume(False)
    assume(not obstacle(case) and not case.distribution.keras_obstacle)
    return case


def _model(draw: Draw, model: str) -> dict[str, Any]:
    sizes = {
        "linear_stack": {"width": st.sampled_from([1, 7, 8, 64]), "layers": st.integers(2, 6)},
        "simple_block": {"hidden": st.sampled_from([3, 7, 20, 33])},
        "two_linear": {"hidden": st.sampled_from([3, 7, 20, 33])},
        "residual_block": {"out_channels": st.sampled_from([3, 5, 8])},
        "transformer": {
            "vocabulary": st.just(60),
            "d_model": st.sampled_from([12, 16]),
            "heads": st.sampled_from([2, 4]),
            "feed_forward": st.sampled_from([9, 32]),
            "encoder_layers": st.integers(1, 2),
            "decoder_layers": st.integers(1, 2),
            "causal": st.booleans(),
        },
    }
    return {name: draw(strategy) for name, strategy in sizes[model].items()}
