"""What strategies answer, the flat form of a case in files, and that nobody asks for a strategy by name."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from parity.config import cases, schema, strategies
from parity.config.base import BaseStrategy

ROOT = Path(__file__).parents[2]
# As in the manifest of a trace.
RECORDED = (
    '{"name":"simple_block/ddp@dataset","model":{"kind":"simple_block","inputs":10,"hidden":20,"outputs":5},'
    '"strategy":"ddp","devices":3,"data":{"source":"diabetes","batch":32,"length":10,"size":32,"scale":1.0},'
    '"loss":{"kind":"mse","reduction":"mean","target":"zeros"},"optimizer":{"kind":"sgd","learning_rate":0.01,'
    '"momentum":0.9,"nesterov":false,"weight_decay":0.0},"schedule":null,"clip_norm":null,"accumulate":2,'
    '"pipeline":"gpipe","stage_blocks":[],"local_buffers":false,"workers":false,"distribute_dataset":true,"fit":false,'
    '"graph":false,"steps":5,"every":1,"seed":0,"precision":"float32","weight_scale":{}}'
)


def chosen(strategy: str, devices: int = 4, **options: Any) -> strategies.Strategy:
    return cases.resolve("transformer/single", {"strategy": strategy, "devices": devices, **options}).distribution


def test_every_name_has_a_struct() -> None:
    assert [kind.__struct_config__.tag for kind in get_args(strategies.Strategy)] == list(get_args(strategies.Name))
    for name in get_args(strategies.Name):
        assert msgspec.to_builtins(chosen(name))["strategy"] == name


def test_a_recorded_case_is_read_and_written_as_it_was() -> None:
    case = msgspec.json.decode(RECORDED, type=schema.Case)
    assert case.distribution == strategies.DDP(
        devices=3, micro_batches=2, local_buffers=False, workers=False, distribute_dataset=True
    )
    assert msgspec.json.encode(case).decode() == RECORDED


def test_every_option_is_a_field_of_a_case_that_can_be_switched_off() -> None:
    assert set(strategies.OPTIONS) < set(msgspec.json.decode(RECORDED))
    assert schema.UNUSED == {
        "accumulate": 1,
        "fit": False,
        "local_buffers": False,
        "workers": False,
        "distribute_dataset": False,
        "pipeline": "gpipe",
        "stage_blocks": (),
    }


# On 4 devices: devices in use, processes of torch, replicas, stages.
NUMBERS = {
    "single": (1, 1, 1, 1),
    "round_robin": (4, 1, 1, 1),
    "data_parallel": (4, 1, 4, 1),
    "ddp": (4, 4, 4, 1),
    "all_reduce": (4, 4, 4, 1),
    "send_recv": (4, 4, 1, 4),
    "pipeline": (4, 4, 1, 4),
    "hybrid": (4, 4, 2, 2),
    "branch_parallel": (4, 1, 1, 1),
    "tensor_parallel": (4, 4, 1, 1),
    "fsdp": (4, 4, 4, 1),
}
# The strategies that answer yes.
YES = {
    "is_distributed": set(NUMBERS) - {"single"},
    "has_ranks": {"ddp", "all_reduce", "send_recv", "pipeline", "hybrid", "tensor_parallel", "fsdp"},
    "is_replicated": {"data_parallel", "ddp", "all_reduce", "hybrid", "fsdp"},
    "is_mirrored": {"data_parallel", "ddp", "all_reduce", "fsdp"},
    "is_gathered": {"data_parallel"},
    "is_chunked": {"data_parallel"},
    "is_staged": {"send_recv", "pipeline", "hybrid"},
    "is_sharded": {"tensor_parallel"},
    "shards_parameters": {"fsdp"},
    "has_dtensors": {"tensor_parallel", "fsdp"},
    "splits_model": {"send_recv", "pipeline", "hybrid", "tensor_parallel"},
    "averages_gradients": {"ddp", "fsdp"},
    "reduces_itself": {"all_reduce", "hybrid"},
    "samples_by_rank": {"all_reduce"},
    "broadcasts_buffers": {"ddp"},
    "fit": set(),
    "distribute_dataset": set(),
    "workers": set(),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_the_numbers_of_a_strategy(name: str) -> None:
    strategy = chosen(name)
    found = strategy.used_devices, strategy.processes("torch"), strategy.replicas, strategy.stages
    assert found == NUMBERS[name]
    assert strategy.processes("keras") == 1


@pytest.mark.parametrize(
    ("strategy", "options", "sizes"),
    [("single", {}, [4]), ("hybrid", {}, [2, 2]), ("pipeline", {"stage_blocks": [1, 1, 2]}, [1, 1, 2])],
)
def test_how_a_strategy_cuts_a_model_of_four_blocks(strategy: str, options: dict[str, Any], sizes: list[int]) -> None:
    assert chosen(strategy, **options).cut(4) == sizes


@pytest.mark.parametrize("answer", YES)
def test_the_answers_of_the_strategies(answer: str) -> None:
    assert {name for name in NUMBERS if getattr(chosen(name), answer)} == YES[answer]


def test_every_answer_is_listed_here() -> None:
    """A new one needs a row above."""
    answers = {name for name in vars(BaseStrategy) if not name.startswith("_")}
    others = {"used_devices", "processes", "replicas", "stages", "devices"}  # NUMBERS
    cuts = {"stage_blocks", "cut"}
    refusals = {
        "can_split",
        "needs",
        "options_obstacle",
        "loss_must_be_mean_because",
        "device_obstacle",
        "batch_obstacle",
        "keras_obstacle",
        "side_obstacle",
    }  # above, test_config.py, test_devices.py
    assert answers == set(YES) | others | cuts | refusals


def test_a_pair_trains_if_it_says_so() -> None:
    table = {"kind": "pair", "torch": "a:b", "keras": "c:d", "inputs": {"x": {"shape": [2, 3]}}}
    plain = msgspec.convert(table, schema.Pair)
    trained = msgspec.convert({**table, "train": {}}, schema.Pair)
    assert (plain.trains, trained.trains, plain.is_distributable, plain.batch_axis) == (False, True, False, 0)


# What the searches look for as text: a strategy's name, or one of its options, as an attribute.
ASKED = re.compile(rf"\.({'|'.join(['strategy', *strategies.OPTIONS])})\b")


@functools.lru_cache(maxsize=1)
def nodes(source: str) -> list[ast.AST]:
    """Return all nodes of a source file, of which both searches are made in turn."""
    return list(ast.walk(ast.parse(source)))


def by_name(source: str) -> Iterator[int]:
    """Yield the lines in which a strategy's name is compared with a word."""

    def is_strategy(node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and node.attr == "strategy"

    for node in nodes(source):
        if isinstance(node, ast.Match) and is_strategy(node.subject):
            yield node.lineno
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            words = any(isinstance(part, ast.Constant) for side in sides for part in ast.walk(side))
            if words and any(map(is_strategy, sides)):
                yield node.lineno


def flat_options(source: str) -> Iterator[int]:
    """Yield the lines that read an option of a strategy from a case, rather than from the strategy's struct.

    The number of micro-batches is left out: every training has it, whatever the strategy.
    """
    for node in nodes(source):
        if isinstance(node, ast.Attribute) and node.attr in strategies.OPTIONS.keys() - {"accumulate"}:
            owner = getattr(node.value, "attr", getattr(node.value, "id", ""))
            if owner == "case":
                yield node.lineno


@pytest.mark.parametrize("package", ["parity", "torch_impl", "keras_impl", "benchmarks"])
def test_what_depends_on_the_strategy_is_asked_of_its_struct(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    searches = (by_name, flat_options)
    texts = {file: text for file in files if ASKED.search(text := file.read_text())}  # parsing all takes seconds
    assert texts
    assert [f"{file}:{line}" for file, text in texts.items() for search in searches for line in search(text)] == []


@pytest.mark.parametrize(
    "source",
    [
        "if case.strategy == 'ddp': pass",
        "one = 1 if run.case.strategy != 'single' else 2",
        "x = self.case.strategy in ('ddp', *OTHERS)",
        "match case.strategy:\n    case 'ddp': pass",
    ],
)
def test_a_question_by_name_is_seen(source: str) -> None:
    assert list(by_name(source)) == [1]
    assert not list(by_name(source.replace("strategy", "name")))


def test_an_option_read_from_the_case_is_seen() -> None:
    assert list(flat_options("train = fit if run.case.fit else train")) == [1]
    assert list(flat_options("x = case.distribute_dataset")) == [1]
    assert not list(flat_options("x = case.distribution.fit or case.accumulate or model.fit"))
