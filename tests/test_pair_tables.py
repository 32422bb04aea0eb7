"""Tables that nobody trains and that a builder draws at random, in whole or in part: what is computed is compared.

The models are those of tests/pairs/tables_torch.py and its counterpart. What is random has torch's values in Keras if
both sides draw it alike; if they do not, they compute something else.
"""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from judged import PAIR, PAIRS, Judge, causes, judge_of, passes_strict
from slow import sampled

from parity.pairs import file
from parity.pairs.judge import judged
from parity.pairs.recording import recorded
from parity.pairs.untrained import disputed
from parity.trace.manifest import Trace

P, F, W = [3, 12, 16], [8, 4], [5, 6]
TRAIN = '[train]\nloss = "mse"\noptimizer = "sgd"\nlearning_rate = 0.0625\nsteps = 2\n'
IDS = 'dtype = "int32"\nrange = [0, 20]\n'
ALIKE = "torch's values are used in Keras for {}, random on both sides and drawn alike ({} seeds)"
REST = "; the rest is computed on each side and compared"
LEFT = "torch's values are used in Keras for {}: frozen weights, random as layers begin with them, and not compared"
VALUES, DRAWN = "buffer.values", "initialisation.distribution"


class Row(NamedTuple):
    """A pair: both builders' arguments and Keras's alone, and a sentence of the report, or a cause and where it is."""

    model: str
    shape: list[int]
    expected: Any
    both: dict[str, Any] = {}
    keras: dict[str, Any] = {}
    more: str = ""


RIGHT = {
    "cls_first": Row("Positions", P, ALIKE.format("row 0 of table [13, 16]", 32) + REST),
    "cls_last": Row("Positions", [3, 13, 16], ALIKE.format("row 12 of table [13, 16]", 32) + REST, {"last": True}),
    "cls_embedding": Row(
        "Positions", P, ALIKE.format("row 0 of positions.weight [13, 16]", 32) + REST, {"held": "embedding"}
    ),
    "cls_trained": Row("Positions", P, None, {"held": "trained"}, {"spread": 1.0}, TRAIN),
    "fourier": Row("Fourier", F, ALIKE.format("B [4, 8]", 96)),
    "fourier_trained": Row("Fourier", F, ALIKE.format("phase [8]", 96), {"phases": True}, {}, TRAIN),
    "rotary": Row("Rotary", [2, 5, 16], ALIKE.format("inv_freq [8]", 96)),
    "codebook": Row("Codebook", W, ALIKE.format("rows 1, 2, 3, 4 and 5 more of codebook [10, 6]", 96) + REST),
    "codebook_of_units": Row(
        "Codebook", W, ALIKE.format("rows 1, 2, 3, 4 and 5 more of codebook [10, 6]", 96) + REST, {"unit": True}
    ),
    "reservoir": Row("Reservoir", W, ALIKE.format("hidden.weight [24, 6]", 32)),
    "reservoir_set": Row("Reservoir", W, ALIKE.format("hidden.weight [24, 6]", 32), {}, {"how": "set"}),
    "reservoir_sparse": Row("Reservoir", W, ALIKE.format("W [6, 24]", 32), {"held": "buffer", "density": 0.2}),
    "numpys_seed": Row("Projected", W, None),
    "numpys_seed_plain": Row("Projected", W, None, {"plain": True}),
    "plain": Row("Plain", P, None),
    "whole_numbers": Row("Hashed", [5, 16], ALIKE.format("order [16]", 96)),
    "computed_whole_numbers": Row("Relative", [2, 9, 4], None),
    "scales": Row("Scaled", F, ALIKE.format("bands [4, 8]", 96)),
    "infinite": Row("Blocked", [2, 8, 6], ALIKE.format("56 elements of mask [8, 8]", 96) + REST),
    "pretrained": Row("Pretrained", [2, 5], LEFT.format("tokens.weight"), {}, {}, IDS),
    "pretrained_padding": Row("Pretrained", [2, 5], LEFT.format("tokens.weight"), {"padding": 0}, {}, IDS),
}
WRONG = {
    "cls_base": Row("Positions", P, (VALUES, "table"), {}, {"base": 1000.0}),
    "cls_exchanged": Row("Positions", P, (VALUES, "table"), {}, {"exchanged": True}),
    "cls_shifted": Row("Positions", P, (VALUES, "table"), {}, {"shift": 1}),
    "cls_moved": Row("Positions", P, (VALUES, "table"), {}, {"moved": True}),
    "cls_spread": Row("Positions", P, (DRAWN, "table"), {}, {"spread": 1.0}),
    "cls_of_zeros": Row("Positions", P, (DRAWN, "table"), {}, {"spread": 0.0}),
    "cls_last_base": Row("Positions", [3, 13, 16], (VALUES, "table"), {"last": True}, {"base": 1000.0}),
    "cls_embedding_base": Row("Positions", P, (VALUES, "positions.weight"), {"held": "embedding"}, {"base": 1000.0}),
    "cls_embedding_spread": Row("Positions", P, (DRAWN, "positions.weight"), {"held": "embedding"}, {"spread": 1.0}),
    "fourier_2_pi": Row("Fourier", F, (DRAWN, "B"), {}, {"factor": 1.0}),
    "fourier_trained": Row("Fourier", F, (DRAWN, "B"), {}, {"factor": 1.0}, TRAIN),
    "fourier_uniform": Row("Fourier", F, (DRAWN, "B"), {}, {"uniform": True}),
    "fourier_turn": Row("Fourier", F, (DRAWN, "phase"), {"phases": True}, {"turn": 1.0}),
    "rotary_base": Row("Rotary", [2, 5, 16], (DRAWN, "inv_freq"), {}, {"base": 1000.0}),
    "rotary_jitter": Row("Rotary", [2, 5, 16], (DRAWN, "inv_freq"), {}, {"jitter": 0.0}),
    "codebook_zero": Row("Codebook", W, (DRAWN, "codebook"), {}, {"zero": -1}),
    "codebook_spread": Row("Codebook", W, (DRAWN, "codebook"), {}, {"spread": 2.0}),
    "reservoir_spread": Row("Reservoir", W, (DRAWN, "hidden.weight"), {}, {"spread": 1.0}),
    "reservoir_set_spread": Row("Reservoir", W, (DRAWN, "hidden.weight"), {}, {"spread": 1.0, "how": "set"}),
    "reservoir_default": Row("Reservoir", W, (DRAWN, "hidden.weight"), {}, {"how": "default"}),
    "reservoir_density": Row("Reservoir", W, (DRAWN, "W"), {"held": "buffer", "density": 0.2}, {"density": 0.5}),
    "numpys_other_seed": Row("Projected", W, (VALUES, "table"), {}, {"seed": 1}),
    "numpys_no_seed": Row("Projected", W, (DRAWN, "table"), {}, {"seed": -1}),
    "numpys_seed_plain": Row("Projected", W, ("code.tensor", "(model)"), {"plain": True}, {"seed": 1}),
    "plain_base": Row("Plain", P, ("code.tensor", "(model)"), {}, {"base": 1000.0}),
    "whole_numbers_repeat": Row("Hashed", [5, 16], (DRAWN, "order"), {}, {"repeats": True}),
    "signs": Row("Hashed", [5, 16], (DRAWN, "sign"), {}, {"signs": False}),
    "computed_whole_numbers": Row("Relative", [2, 9, 4], (VALUES, "index"), {}, {"flipped": True}),
    "scales": Row("Scaled", F, (DRAWN, "bands"), {}, {"rolled": 1}),
    "hyperplanes": Row("Nearest", W, (DRAWN, "planes"), {}, {"uniform": True}),
    "diagonal": Row("Blocked", [2, 8, 6], (DRAWN, "mask"), {}, {"diagonal": False}),
    "density": Row("Blocked", [2, 8, 6], (DRAWN, "mask"), {}, {"density": 0.8}),
}


@pytest.fixture(scope="module")
def judge(backends, tmp_path_factory) -> Judge:
    return judge_of("tables", backends, tmp_path_factory)


@pytest.mark.parametrize("name", sampled(RIGHT, "pretrained"))
def test_a_right_table_matches_and_what_is_torchs_is_told(name: str, judge: Judge):
    row = RIGHT[name]
    result = judge(row.model, row.shape, row.more, row.both, **row.keras)
    assert passes_strict(result), result
    assert row.expected in (result.assumptions or [None])


@pytest.mark.parametrize("name", sampled(WRONG, "computed_whole_numbers"))
def test_a_wrong_table_is_named(name: str, judge: Judge):
    row = WRONG[name]
    result = judge(row.model, row.shape, row.more, row.both, **row.keras)
    assert result.verdict == "diverged" and row.expected in causes(result), result


@pytest.mark.slow
def test_both_distributions_are_told_and_a_rule_loads_torchs_values(judge: Judge):
    row = WRONG["fourier_2_pi"]
    result = judge(row.model, row.shape, **row.keras)
    (cause,) = result.causes
    assert cause.torch.startswith("root mean square ") and cause.keras.startswith("root mean square ")
    said = "random are B [4, 8] in torch and B [4, 8] in keras, and not drawn alike: over 96 seeds, root mean square "
    assert cause.evidence.startswith(said)
    (suggestion,) = result.suggestions
    assert judge(row.model, row.shape, suggestion.toml, **row.keras).verdict == "match"


@pytest.mark.slow
def test_computed_values_that_nothing_reads_may_differ_beside_a_random_row(judge: Judge):
    result = judge("Positions", P, ends=True)
    assert passes_strict(result)
    kept, used = result.assumptions
    assert "at [206]" in kept and kept.endswith(disputed.KEPT)
    assert used == RIGHT["cls_first"].expected


@pytest.mark.slow
def test_sides_that_are_recorded_apart(backends: Any, tmp_path: Path):
    row = WRONG["cls_embedding_base"]
    path = tmp_path / "tables.toml"
    path.write_text(PAIR.format(name="tables", model=row.model, shape=row.shape, more=""))
    changes = [f"pair.kwargs.held={row.both['held']!r}", f"pair.keras_kwargs.base={row.keras['base']}"]
    for overrides, verdict in ((changes[:1], "match"), (changes, "diverged")):
        folder = tmp_path / verdict
        for backend in backends:
            folder.joinpath(backend.name).mkdir(parents=True)
            recorded(file.load(path, overrides)._replace(search=[str(PAIRS)]), backend, folder)
        result = judged(*(Trace(folder / backend.name) for backend in backends))
        assert result.verdict == verdict
        assert RIGHT["cls_embedding"].expected in result.assumptions


@pytest.mark.slow
def test_a_scale_that_makes_no_difference_is_told(judge: Judge):
    result = judge("Nearest", W)
    assert passes_strict(result)
    (sentence,) = result.assumptions
    assert sentence.startswith("random are planes") and sentence.endswith(disputed.FREE)


@pytest.mark.slow
def test_a_table_that_is_too_large_to_be_drawn_again_is_told(judge: Judge, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(disputed, "LARGEST", 31)
    result = judge("Fourier", F, factor=1.0)
    assert result.verdict == "match"
    assert result.assumptions == [
        "torch's values are used in Keras for B, random, and too large to be drawn many times: not compared"
    ]
