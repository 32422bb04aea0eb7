"""The parts of the HTML report: its drawings, its lists of tensors, the table of cases."""

import re

import pytest
from report_samples import TWO

from parity.details import Compared, Counterpart, Details
from parity.report.html import comparison, plots, svg
from parity.report.html.comparison import matrix
from parity.results import Against, CaseResult


def tensor(name: str, verdict: str = "match", kind: str = "activation", **fields: object) -> Compared:
    return Compared(step=0, replica=0, kind=kind, name=name, verdict=verdict, **fields)  # type: ignore[arg-type]


def test_the_rows_are_the_unequal_ones_with_their_neighbours_and_the_worst_of_each_module() -> None:
    tensors = [tensor(f"m{number // 5}", bits=20.0 + number % 5) for number in range(30)]
    tensors[17].verdict = "diverged"
    assert comparison.listed(tensors) == [0, 5, 10, 15, 16, 17, 18, 19, 20, 25]


def test_a_weight_s_tensors_belong_to_its_module() -> None:
    named = {"gradient": "a.b.weight@local", "optimizer_state": "a.b.weight.exp_avg", "activation": "a.b#1"}
    assert {comparison.module(tensor(name, kind=kind)) for kind, name in named.items()} == {"a.b"}
    assert comparison.module(tensor("learning_rate", kind="optimizer_state")) == "learning_rate"


def test_rows_have_both_names_and_how_they_were_matched() -> None:
    counterparts = [
        Counterpart(what="weight", torch="a.weight", keras="dense/kernel", by="shape"),
        Counterpart(what="activation", torch="a", keras="dense", by="value"),
        Counterpart(what="activation", torch="", keras="extra", by=""),
    ]
    tensors = [tensor("a"), tensor("a.weight", kind="gradient"), tensor("a.weight.m", kind="optimizer_state"),
               tensor("b", "diverged", alone="torch"), tensor("c", "diverged")]  # fmt: skip
    (group,) = comparison.groups(Details(needed=20, tensors=tensors, counterparts=counterparts), range(5))
    assert [row[:4] for row in group.rows] == [
        ("matched", "a", "dense", "value"),
        ("matched", "a.weight", "dense/kernel", "shape"),
        ("matched", "a.weight.m", "dense/kernel", "shape"),
        ("alone", "b", "", "name"),
        ("diverged", "c", "c", "name"),
        ("alone", "", "extra", ""),
    ]


def test_many_rows_are_folded_by_module() -> None:
    tensors = [tensor(f"model.layers.{layer}.part{part}") for layer in range(8) for part in range(9)]
    found = comparison.groups(Details(needed=20, tensors=tensors), range(len(tensors)))
    assert [(group.name, len(group.rows)) for group in found] == [(f"model.layers.{layer}", 9) for layer in range(8)]
    assert not any(group.is_open for group in found)
    for number in (30, 50):
        tensors[number].verdict = "diverged"
    found = comparison.groups(Details(needed=20, tensors=tensors), range(len(tensors)))
    assert [(group.name, group.unequal) for group in found if group.unequal] == [
        ("model.layers.3", 1),
        ("model.layers.5", 1),
    ]
    assert [group.name for group in found if group.is_open] == ["model.layers.3"]


def test_a_case_of_one_side_says_so() -> None:
    case = CaseResult(case="simple_block/fsdp", verdict="match", devices={"torch": ["CPU"]})
    case.against_single = {"torch": Against(), "keras": Against(skipped="it has none")}
    (entry,) = matrix([case]).models["simple_block"]["fsdp"]
    assert (entry.case.verdict, entry.case.alone) == ("match", "torch")


def test_the_matrix_has_a_cell_for_each_case() -> None:
    names = ["m/ddp", "m/single", "m/single@adam", "n/ddp", "pair/mine", "m/single (torch)", "m/own"]
    made = matrix([CaseResult(case=name, verdict="match") for name in names])
    assert made.strategies == ["single", "ddp", "own"]
    assert [entry.variant for entry in made.models["m"]["single"]] == ["", "adam"]
    assert [entry.case.case for entry in made.others] == ["pair/mine", "m/single (torch)"]


def y_of(drawing: str, style: str) -> list[float]:
    (path,) = re.findall(rf'<path d="([^"]*)" class="{style}"', drawing)
    return [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", path)]


def test_there_is_no_band_without_numbers() -> None:
    assert plots.noise_band(Details(needed=20, tensors=[tensor("ids")]), [0]) == ""
    assert plots.noise_band(Details(needed=20), []) == ""


def test_the_losses_and_their_difference() -> None:
    curves: dict[str, list[float | None]] = {"torch": [2.0, 1.0, 0.5], "keras": [2.0, 1.5, None]}
    drawing = str(plots.loss_curves(curves))
    assert len(y_of(drawing, "reference")) == 3 and len(y_of(drawing, "candidate")) == 2
    assert drawing.count('class="bar"') == 1 and "<title>step 1, keras: 1.5</title>" in drawing
    assert plots.largest_difference(curves) == pytest.approx(1 / 3)
    assert plots.loss_curves({"torch": [1.0], "keras": [1.0]}) == ""
    assert plots.loss_curves({"torch": [None, None], "keras": [None, None]}) == ""


def test_the_devices_and_what_moves_between_them() -> None:
    drawing = str(svg.drawing("torch", TWO))
    texts = re.findall(r">([^<]+)</text>", drawing)
    assert texts == [
        "0: CPU (virtual)", "1 parameter", "linear1", "relu", "1: CPU (virtual)", "1 parameter", "linear2",
        "activation 2.0 KiB", "all_reduce 800 bytes",
    ]  # fmt: skip
    assert drawing.count('class="head"') == 3  # one of the copy, two of the collective


def test_many_modules_are_counted_by_their_beginnings() -> None:
    names = [f"encoder.layers.{layer}.{part}" for layer in range(3) for part in "abcd"]
    assert svg.folded(names, 8) == [f"encoder.layers.{layer} (4)" for layer in range(3)]
    assert svg.folded(["a", "b.c"], 8) == ["a", "b.c"]
    assert svg.folded(list("abcdefghij"), 8) == [*"abcdefg", "and 3 more"]
    assert svg.folded([], 8) == []
