"""The automatic mapping of weights: how axes move, and what it comes to where names say nothing."""

import numpy as np
import pytest
from msgspec.structs import replace
from pair_surveys import PAIR
from pair_zoo import MODELS

from parity.pairs.weights.propose import propose
from parity.pairs.weights.transfer import to_keras
from parity.runtime.survey import Survey


def anonymous(survey: Survey) -> tuple[Survey, dict[str, str]]:
    """Keras's half with modules whose names say nothing, and the weights' new names."""
    paths = {
        module.path: f"m{chr(97 + number % 26) * (number // 26 + 1)}" for number, module in enumerate(survey.modules)
    }
    paths = {path: "/".join(paths[prefix] for prefix in prefixes(path) if prefix in paths) for path in paths} | {"": ""}
    modules = [replace(module, path=paths[module.path]) for module in survey.modules]
    weights = [replace(one, module=paths[one.module], name=f"{paths[one.module]}/{one.role}") for one in survey.weights]
    renamed = {old.name: new.name for old, new in zip(survey.weights, weights, strict=True)}
    return replace(survey, modules=modules, weights=weights, called=[paths[path] for path in survey.called]), renamed


def prefixes(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[: number + 1]) for number in range(len(parts))]


# Where Keras calls branches in another order, and nothing but names tells which is which.
BY_NAME_ALONE = {"nested"}


@pytest.mark.parametrize("name", MODELS)
def test_without_names_the_truth_is_the_mapping_or_a_choice(name: str) -> None:
    model = MODELS[name]
    there, renamed = anonymous(model.keras)
    proposal = propose(model.torch, there, PAIR)
    offered = [entry for ambiguity in proposal.ambiguities for choice in ambiguity.choices for entry in choice]
    found = {("+".join(one.torch), "+".join(one.keras)) for one in [*proposal.mapping.entries, *offered]}
    truth = {(one, "+".join(renamed[part] for part in other.split("+"))) for one, other in model.truth.items()}
    assert proposal.mapping.unplaced == [] and (truth <= found) == (name not in BY_NAME_ALONE)


MOVES = {
    "convolutions": {
        "deep.weight": "(c m) 1 y x -> y x c m",
        "spread.weight": "(c m) 1 y x -> y x c m",
        "mixed.weight": "o i y x -> y x i o",
        "up.weight": "i o y x -> y x o i",
        "line.weight": "o i x -> x i o",
        "room.weight": "o i z y x -> z y x i o",
    },
    "multihead": {
        "att.in_proj_weight": "(n d e) c -> n c d e",
        "att.in_proj_bias": "(n d e) -> n d e",
        "att.out_proj.weight": "e (c d) -> c d e",
        "head.weight": "o i -> i o",
    },
    "vision": {
        "embeddings.position_embeddings": "1 a1 a2 -> a1 a2",
        "embeddings.projection.weight": "o i y x -> y x i o",
    },
    "tied once": {"emb.weight": "... -> ...; o i -> i o", "body.weight": "o i -> i o"},
    "untied": {"lm_head.weight": "o i -> i o", "body.weight": "o i -> i o"},
    "lstm": {
        f"r.weight_{one}_l{n}{way}": "o i -> i o" for one in ("ih", "hh") for n in (0, 1) for way in ("", "_reverse")
    },
}


@pytest.mark.parametrize("name", MOVES)
def test_how_axes_move(name: str) -> None:
    entries = propose(MODELS[name].torch, MODELS[name].keras, PAIR).mapping.entries
    assert {"+".join(entry.torch): entry.rearrange for entry in entries if entry.rearrange} == MOVES[name]


def test_the_gates_of_a_gru_change_places() -> None:
    model = MODELS["gru"]
    entries = {"+".join(one.torch): one for one in propose(model.torch, model.keras, PAIR).mapping.entries}
    marks = np.repeat([1.0, 2.0, 3.0], 6)  # reset, update, new
    kernel = to_keras(entries["r.weight_hh_l0"], [np.outer(marks, np.arange(6))], [(6, 18)])[0]
    assert np.array_equal(kernel[1], np.repeat([2.0, 1.0, 3.0], 6))
    bias = to_keras(entries["r.bias_ih_l0+r.bias_hh_l0"], [marks, 10 * marks], [(2, 18)])[0]
    assert np.array_equal(bias, np.outer([1.0, 10.0], np.repeat([2.0, 1.0, 3.0], 6)))
