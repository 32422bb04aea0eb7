"""A report is scored by what the mutation is; each score fails where the report does not deserve it."""

import json

import pytest
from mutating.page import goals, page
from mutating.score import scored

MUTANT = {
    "pair": "bert",
    "number": 3,
    "seed": 7,
    "status": "real",
    "seconds": 9.0,
    "kind": "number of an argument",
    "setting": "layer_norm_epsilon",
    "file": "port/bert_backbone.py",
    "function": "BertBackbone.__init__",
    "before": "1e-12",
    "after": "(1e-11)",
    "old": 1e-12,
    "new": 1e-11,
    "first": 20,
    "last": 22,
    "target": "norms",
    "differences": {"outputs": 1e-7},
    "layers": {"within": [""], "makes": ["encoder/norm"], "calls": ["encoder/dense"], "before": ["embed"]},
}
CAUSE = {"id": "layer_norm.epsilon", "where": "layers.0.norm", "torch": 1e-12, "keras": 1e-11, "evidence": ""}
CLEAN = {"verdict": "match", "kind": "", "place": "", "reason": "", "causes": [], "layers": {}, "unplaced": []}
CLEAN |= {"owners": {"pos.weight": ["encoder/dense"], "other.weight": ["elsewhere"]}}
PLACES = {
    "layers.0.norm": ["encoder/norm"],
    "dense": ["encoder/dense"],
    "embed": ["embed"],
    "far": ["decoder/norm"],
    "(model)": [""],
    "(model).image": ["(model).image"],
}


def said(**changes) -> dict:
    base = CLEAN | {"verdict": "diverged", "kind": "activation", "place": "layers.0.norm", "causes": [CAUSE]}
    return base | {"layers": PLACES} | changes


def score(told: dict, clean: dict = CLEAN, **mutant) -> dict:
    return scored(MUTANT | mutant | {"said": told, "clean": clean})


def test_a_right_report_has_all_scores():
    line = score(said())
    assert (line["caught"], line["placed"], line["named"], line["false"]) == (True, True, True, [])


@pytest.mark.parametrize("verdict", ["diverged", "subprecision", "error", "inconclusive"])
def test_another_verdict_is_caught(verdict):
    assert score(said(verdict=verdict))["caught"]


def test_a_match_is_missed_whatever_it_says():
    line = score(said(verdict="match"))
    assert (line["caught"], line["placed"], line["named"]) == (False, False, False)


def test_the_clean_port_s_own_report_is_no_catch():
    clean = said(verdict="subprecision")
    assert not score(clean, clean)["caught"]
    assert score(said(verdict="subprecision", place="dense"), clean)["caught"]
    assert score(said(verdict="subprecision", causes=[CAUSE, CAUSE | {"where": "dense"}]), clean)["caught"]


@pytest.mark.parametrize(
    ("changes", "placed"),
    [
        ({"place": "dense", "causes": []}, True),
        ({"place": "far", "causes": []}, False),
        ({"place": "embed", "causes": []}, False),
        ({"place": "embed", "causes": [], "kind": "gradient"}, True),
        ({"place": "(model)", "causes": []}, True),
        ({"place": "far", "causes": [CAUSE | {"where": "far", "evidence": "in f (port/bert_backbone.py:21)"}]}, True),
        ({"place": "far", "causes": [CAUSE | {"where": "far", "evidence": "in f (port/bert_backbone.py:23)"}]}, False),
        ({"verdict": "error", "place": "", "causes": [], "unplaced": [["torch", "pos.weight"]]}, True),
        ({"verdict": "error", "place": "", "causes": [], "unplaced": [["torch", "other.weight"]]}, False),
        ({"verdict": "error", "place": "", "causes": [], "unplaced": [["keras", "elsewhere/kernel"]]}, False),
        ({"verdict": "error", "place": "", "causes": [], "unplaced": [["keras", "a_third_layer/kernel"]]}, True),
        ({"verdict": "error", "place": "", "causes": [], "unplaced": [["keras", "encoder/norm/inner/kernel"]]}, True),
        ({"place": "(model).image", "causes": []}, True),
        ({"verdict": "error", "place": "", "causes": [], "reason": "encoder/norm cannot be called"}, True),
    ],
)
def test_a_place_is_near_the_mutated_lines(changes, placed):
    assert score(said(**changes))["placed"] == placed


def test_the_whole_model_is_a_place_only_for_what_stands_directly_in_it():
    layers = MUTANT["layers"] | {"within": ["decoder/block"]}
    assert not score(said(place="(model)", causes=[]), layers=layers)["placed"]
    assert score(said(place="(model)", causes=[]), layers=layers | {"calls": ["encoder"]})["placed"]


@pytest.mark.parametrize(("kind", "placed"), [("mask", True), ("constant", False)])
def test_a_mask_is_placed_at_an_attention_in_the_layer_that_makes_it(kind, placed):
    layers = {"within": ["decoder/block"], "makes": [], "calls": ["decoder/block/norm"], "before": []}
    told = said(causes=[], layers=PLACES | {"layers.0.norm": ["decoder/block/self_attention"]})
    assert score(told, kind=kind, layers=layers)["placed"] == placed


@pytest.mark.parametrize(("weights", "placed"), [(["attn/query", "attn/key"], True), (["attn/query"], False)])
def test_a_module_without_a_counterpart_is_what_is_around_its_weights(weights, placed):
    layers = {"within": ["attn"], "makes": [], "calls": [], "before": []}
    told = said(causes=[], layers=PLACES | {"layers.0.norm": weights})
    assert score(told, layers=layers)["placed"] == placed


@pytest.mark.parametrize(
    ("cause", "mutant", "named"),
    [
        ({"id": "unknown"}, {}, False),
        ({"id": "layer_norm.bias", "torch": True, "keras": False}, {}, False),
        ({"id": "code.constant", "torch": 1e-12, "keras": 1e-11}, {"setting": ""}, True),
        ({"id": "attention.scale", "torch": 0.5, "keras": 1.0}, {"setting": "", "old": 2.0, "new": 4.0}, True),
        ({"id": "attention.scale", "torch": 0.5, "keras": 0.9}, {"setting": "", "old": 2.0, "new": 4.0}, False),
        ({"id": "code.function", "evidence": "(bert_backbone.py:20)"}, {"setting": ""}, True),
        ({"id": "module.wiring"}, {"kind": "dropped summand", "setting": "Add"}, True),
        ({"id": "module.wiring"}, {"kind": "cast", "setting": "float16"}, False),
        ({"id": "block.ratio"}, {"kind": "operator", "setting": "Divide", "before": "1.0 / self._ratio"}, True),
        ({"id": "block.ratio"}, {"kind": "operator", "setting": "Divide", "before": "1.0 / self._ratios"}, False),
        ({"id": "attention.scale"}, {"kind": "operator", "setting": "Divide", "target": "_scale"}, True),
        ({"id": "module.operation"}, {"kind": "operator", "setting": "Add"}, True),
        ({"id": "norm.eps", "keras": 0.0}, {"kind": "dropped summand", "setting": "Add", "before": "x + eps"}, True),
        ({"id": "norm.eps", "keras": 0.1}, {"kind": "dropped summand", "setting": "Add", "before": "x + eps"}, False),
        (
            {"id": "code.function", "torch": "dense", "keras": "left out"},
            {"kind": "order of two calls", "setting": ""},
            True,
        ),
        (
            {"id": "code.function", "torch": "relu", "keras": "left out"},
            {"kind": "order of two calls", "setting": ""},
            False,
        ),
        ({"id": "attention.mask"}, {"kind": "constant", "setting": "", "function": "Block._causal_mask"}, True),
        ({"id": "attention.mask"}, {"kind": "constant", "setting": "", "function": "MaskedBlock.call"}, False),
        ({"id": "gelu.form"}, {"kind": "word", "setting": "activation", "old": "relu", "new": "gelu"}, True),
    ],
)
def test_a_cause_tells_the_mutation_or_is_false(cause, mutant, named):
    values = {"torch": None, "keras": None} | cause
    line = score(said(causes=[CAUSE | values]), **mutant)
    assert line["named"] == named
    assert bool(line["false"]) == (not named and cause["id"] != "unknown")


def test_what_the_clean_port_differs_in_is_no_false_cause():
    other = CAUSE | {"id": "constant.precision", "where": "act", "torch": "float64", "keras": "float32"}
    assert score(said(causes=[CAUSE, other]))["false"] == [other]
    assert score(said(causes=[CAUSE, other]), CLEAN | {"causes": [other]})["false"] == []


def test_the_page_counts_and_lists():
    equivalent = {"pair": "vgg", "number": 0, "seed": 7, "status": "equivalent", "kind": "axis"}
    missed = score(said(verdict="match", causes=[]))
    false = score(said(causes=[CAUSE | {"id": "dropout.rate", "torch": 0.1, "keras": 0.3}]))
    lines = [scored(equivalent), score(said()) | {"repaired": True}, missed, false]
    told = page(json.loads(json.dumps(lines)))
    assert "| caught | 2 of 3 (66.7%) | 99.5% |" in goals(lines)
    assert "| repaired | 1 of 1 (100.0%) | 60% |" in goals(lines)
    assert "| with a false cause | 1 of 3 (33.3%) | under 2% |" in goals(lines)
    assert "| number of an argument | 3 | 0 | 0 | 3 | 2 | 2 | 1 | 1 | 1 of 1 |" in told
    assert "\n| 7 | 4 | 1 | 0 | 3 | 2 | 2 | 1 | 1 | 1 of 1 |" in told.partition("## By seed")[2]
    assert "truly apart in outputs 1e-07" in told
    assert "`dropout.rate` at layers.0.norm, torch 0.1, keras 0.3" in told
    unnamed = told.partition("## Not named")[2].partition("## Not placed")[0]
    assert unnamed.count("number of an argument in bert_backbone.py:20") == 1  # the one with the false cause alone


@pytest.mark.parametrize(("function", "named"), [("max_pool2d", True), ("relu", False)])
def test_a_function_tells_the_setting_that_switches_it_on(function, named):
    cause = {"id": "code.function", "where": "norm", "torch": function, "keras": "left out", "evidence": ""}
    line = score(said(causes=[cause]), kind="switch", setting="max_pool", old=True, new=False, target="x")
    assert (line["named"], line["false"]) == (named, [] if named else [cause])


@pytest.mark.parametrize(("torch", "keras", "named"), [("rsqrt", "left out", True), ("sqrt", "left out", False)])
def test_a_dropped_function_is_told_by_its_name(torch, keras, named):
    cause = {"id": "code.function", "where": "norm", "torch": torch, "keras": keras, "evidence": ""}
    dropped = {"kind": "dropped activation", "setting": "rsqrt", "old": None, "new": None, "target": "x"}
    line = score(said(causes=[cause]), **dropped)
    assert (line["named"], line["false"]) == (named, [] if named else [cause])
