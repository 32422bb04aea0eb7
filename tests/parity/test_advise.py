"""The advice: tables of devices, formulas by hand, and what the command refuses; nothing here starts a framework."""

import json
from pathlib import Path
from typing import get_args

import pytest

from parity.advise import __main__ as command
from parity.advise import advice, choices, measure
from parity.advise.advice import Adviser, Target
from parity.advise.choices import Link, by_strategy
from parity.advise.costs import Compute, balanced, duration, memory
from parity.advise.describe import describe
from parity.advise.measure import Here, Rates, Single, Step
from parity.advise.model import Model
from parity.advise.strategies import STRATEGIES, pieces
from parity.config import cases
from parity.config.schema import Case
from parity.config.strategies import Strategy
from parity.core.errors import UsageError

HERE = Here({"torch": "", "keras": ""}, "cpu", 1.0, 60.0)
LINK = Link(bandwidth=1.0, latency=100.0, source="a test")
MS = 1e-3


def case(name: str, **changes: object) -> Case:
    return cases.resolve(name, {"devices": 2, **changes})


def aim(text: str = "2xH200", **changes: object) -> Target:
    row = choices.table().device["H200"]
    facts = {"links": (LINK, LINK), "memory": 1e9, "rates": Rates(1e10, 1e10), "row": row, **changes}
    return Target(group=choices.parse(text, choices.table()), **facts)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of `single` takes 10 ms, of which 2 ms are there whatever the batch; the process has 300 MB."""

    def single(case: Case, model: Model, side: str, here: Here) -> Single:
        flops = model.cost.flops * case.data.batch
        return Single(Compute(0, 2 * MS, 8 * MS / flops), 10 * MS, 3e8)

    monkeypatch.setattr(advice, "single", single)
    monkeypatch.setattr(command, "rates", lambda: Rates(1e10, 1e10))
    monkeypatch.setattr(command, "measured_link", lambda number, here: LINK)
    monkeypatch.setattr(advice, "processors", lambda: 2)


def test_every_strategy_has_its_formulas() -> None:
    assert set(get_args(Strategy)) == set(STRATEGIES)


@pytest.mark.parametrize(
    ("costs", "stages", "expected"),
    [
        ([1, 1, 1, 1, 2, 2, 2, 2], 2, [5, 3]),
        ([5, 1, 1, 1], 2, [1, 3]),
        ([1, 1, 1, 5], 3, [1, 2, 1]),
        ([0, 0, 0], 3, [1, 1, 1]),
        ([7], 1, [1]),
    ],
)
def test_stages_are_balanced(costs: list[float], stages: int, expected: list[int]) -> None:
    assert balanced(costs, stages) == expected
    assert pieces(20, 3) == [7, 7, 6]
    assert pieces(3, 4) == [1, 1, 1]


def test_memory_of_ddp_by_hand() -> None:
    # Linear(10, 20), Linear(20, 5): 325 parameters of 4 bytes, with one slot of momentum; 16 samples for each device.
    kept = 16 * 4 * (10 + 20)  # the inputs of both layers
    data = 16 * 4 * (10 + 5 + 5 + 5)  # input, target, output and its gradient
    (first, second) = memory(case("simple_block/ddp"), describe(case("simple_block/ddp")), "torch")
    assert first == second == (1300, 1300, 1300, 0, kept + data, 1300, 0)


def test_a_pipeline_has_bubbles_and_uneven_stages() -> None:
    # Three equal layers on two stages, two and one; four micro-batches.
    trained = case("linear_stack/pipeline", model={"layers": 3, "width": 64}, accumulate=4)
    model = describe(trained)
    compute = Compute(0, 0, 12 * MS / (model.cost.flops * trained.data.batch))
    found = duration(trained, model, "torch", compute, LINK)
    assert found[:3] == pytest.approx((6 * MS, 2 * MS, 2 * MS))


def test_stages_share_the_update_and_replicas_each_make_it() -> None:
    # Three equal layers: on two stages two and one, each with its parameters.
    for strategy, seconds in (("ddp", 6 * MS), ("fsdp", 6 * MS), ("send_recv", 4 * MS)):
        trained = case(f"linear_stack/{strategy}", model={"layers": 3, "width": 64})
        found = duration(trained, describe(trained), "torch", Compute(6 * MS, 0, 0), LINK)
        assert found.compute + found.imbalance == pytest.approx(seconds)


def test_what_micro_batches_add_to_a_process_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    # With Keras each of four micro-batches is a part of the graph: three more take 30 MB; the tensors take their part.
    trained = case("two_linear/single", data={"batch": 32})
    model = describe(trained)
    alone, parts = (sum(memory(case("two_linear/single", accumulate=n), model, "keras")[0]) for n in (1, 4))
    monkeypatch.setattr(measure, "steps", lambda *_: [Step(MS, 300e6 + alone), Step(MS, 0), Step(MS, 330e6 + parts)])
    found = measure.single(trained, model, "keras", HERE)
    assert (found.beside, found.added) == pytest.approx((300e6, 10e6))
    monkeypatch.setattr(advice, "single", lambda *_: found)
    here = aim("cpu:2", row=None, rates=None)
    choices = {each.strategy: each for each in Adviser(trained, model, HERE).choices(here, ["keras"])}
    split = memory(case("two_linear/pipeline", accumulate=8, data={"batch": 32}), model, "keras")
    assert choices["pipeline"].peak == pytest.approx(300e6 + 7 * 10e6 + sum(map(sum, split)))
    assert choices["round_robin"].peak < 301e6
    four = {each.strategy: each for each in Adviser(trained, model, HERE).choices(aim("cpu:4"), ["keras"])}
    assert four["hybrid"].micro_batches == 8 and four["hybrid"].peak // 1e6 == 300 + 15 * 10  # of two replicas


def test_the_link_is_what_messages_and_reductions_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two devices: 2 messages of 100 µs; 4 tensors of 2 messages and 300 µs; 12 tensors, 6303744 bytes at 1 GB/s.
    taken = iter([2 * 100e-6, 4 * 500e-6, 12 * 500e-6 + 6303744e-9])
    monkeypatch.setattr(measure, "steps", lambda *_: [Step(MS, 0), Step(MS + next(taken), 0)])
    monkeypatch.setattr(measure, "processors", lambda: 2)
    found = measure.measured_link(2, HERE)
    assert (found.latency, found.collective, found.bandwidth) == pytest.approx((100, 300, 1))


def test_what_cannot_be_trained_has_a_reason() -> None:
    found = by_strategy(case("two_linear/single", clip_norm=1.0), 3)
    assert "cannot split the model TwoLinear" in found["branch_parallel"]
    assert "even number of devices" in found["hybrid"] or "clip_norm" in found["hybrid"]
    assert isinstance(found["ddp"], Case)


OWN = """
[device.Mine]
memory = 10
bandwidth = 100
float32 = 1
link = "wire"
source = "the box"
[link.wire]
bandwidth = 1
latency = 5
source = "the box"
"""


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("memory = 10", "memory = -10", "memory"),
        ("memory = 10", "memory = inf", "infinite"),
        ("memory = 10", 'memory = "much"', "memory"),
        ("float32 = 1", "float32 = 1\nflops = 2", "unknown field `flops`"),
        ("float32 = 1", "float32 = 1\nmemroy = 2", "did you mean 'memory'"),
        ('link = "wire"', 'link = "wires"', "did you mean 'wire'"),
        ("latency = 5", "latency = -5", "latency"),
        ("[device.Mine]", "[device.Mine", "is not TOML"),
        ('source = "the box"\n[link', "[link", "source"),
    ],
)
def test_a_table_with_nonsense_is_refused_in_one_line(old: str, new: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(OWN.replace(old, new, 1))
    with pytest.raises(UsageError) as raised:
        choices.table(path)
    assert complaint in str(raised.value) and "\n" not in str(raised.value) and "own.toml" in str(raised.value)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--case=two_linear/single", "--devices=8xH20"], "did you mean 'H200'"),
        (["--case=two_linear/single", "--devices=8xH200", "--link=nvlnik"], "did you mean 'nvlink"),
        (["--case=two_linear/single", "--devices=8xH200", "--memory=-4GB"], "expected the memory"),
        (["--case=two_linear/single", "--devices=8xH200", "--memory=0GB"], "above 0"),
        (["--case=two_linear/single", "--devices=8xH200", "--check"], "leave one of them out"),
        (["--case=two_linear/single", "--table=/no/such.toml"], "expected a TOML file"),
        (["--case=two_linear/nothing", "--devices=8xH200"], "no case matches"),
    ],
)
def test_wrong_usage(flags: list[str], complaint: str, measured: None) -> None:
    with pytest.raises(UsageError, match=complaint):
        command.main(flags)


def advised(tmp_path: Path, *flags: str) -> dict:
    path = tmp_path / "advice.json"
    assert command.main([*flags, f"--json={path}"]) == 0
    document = json.loads(path.read_text())
    assert document["schema"] == 1 and not document["error"]
    return document["advice"][0]


def test_the_command_advises(tmp_path: Path, measured: None, capsys: pytest.CaptureFixture[str]) -> None:
    found = advised(tmp_path, "--case=transformer/single", "--devices=8xH200", "--link=ethernet")
    assert len(found["choices"]) == 22
    absent = {(each["side"], each["strategy"]): each["why_not"] for each in found["choices"] if each["why_not"]}
    assert "keras.distribution" in absent["keras", "fsdp"]
    assert ("torch", "fsdp") not in absent
    text = capsys.readouterr().out
    assert "not fsdp (keras): nothing of Keras on TensorFlow shards parameters" in text
    assert "10 gigabit Ethernet" in text and "is predicted to be the fastest that fits" in text


def test_what_does_not_fit_is_not_chosen(tmp_path: Path, measured: None, capsys: pytest.CaptureFixture[str]) -> None:
    # Parameters and gradients of all layers take 50 MB; a shard of four a quarter of it.
    found = advised(tmp_path, "--case=transformer/single", "--devices=4xH200", "--memory=60MB")
    fits = {each["strategy"] for each in found["choices"] if each["side"] == "torch" and each["fits"]}
    assert "fsdp" in fits and not fits & {"single", "ddp", "all_reduce"}
    assert found["best"]["torch"] in fits
    advised(tmp_path, "--case=transformer/single", "--devices=4xH200", "--memory=1MB")
    assert "torch: nothing fits" in capsys.readouterr().out


def test_other_devices_compute_at_their_rate_and_precision(measured: None) -> None:
    # Of 10 ms 8 grow with the samples. A device that is 100 times as fast leaves 0.08 of them; with ten times its flops
    # in bfloat16 its memory becomes the limit, unless that is fast as well.
    def grown(precision: str, bandwidth: float) -> float:
        row = choices.Device(memory=1, bandwidth=bandwidth, float32=1, bfloat16=10, link="pcie", source="a test")
        trained = case("two_linear/single", precision=precision)
        there = aim("1xH200", row=row, rates=Rates(flops=1e10, bandwidth=1e10))
        return sum(Adviser(trained, describe(trained), HERE).duration(trained, "torch", there)) - 2 * MS

    assert grown("float32", 1e3) == pytest.approx(0.08 * MS)
    assert 0.008 * MS < grown("bfloat16", 1e3) < 0.08 * MS
    assert grown("bfloat16", 1e6) == pytest.approx(0.008 * MS)


def test_predictions_are_held_against_what_is_measured(
    tmp_path: Path, measured: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # `single` takes 20 ms in that run, twice as long as in the first one, and each strategy as long as it.
    monkeypatch.setattr(advice, "steps", lambda trained, *_: [Step(20 * MS, 1), Step(20 * MS, 200_000_000)])
    found = advised(tmp_path, "--case=two_linear/single", "--devices=cpu:2", "--check")
    (alone,) = [each for each in found["choices"] if (each["side"], each["strategy"]) == ("torch", "single")]
    assert alone["measured"]["seconds"] == pytest.approx(10 * MS)
    assert alone["measured"]["seconds_error"] == pytest.approx(0)
    assert alone["measured"]["peak_error"] == pytest.approx(0.5, abs=0.01)
    assert "+50%" in capsys.readouterr().out


def test_more_even_stages_are_proposed_where_they_are_faster(
    tmp_path: Path, measured: None, capsys: pytest.CaptureFixture[str]
) -> None:
    # With so many words the output layer has more work than all others.
    flags = ["--case=transformer/single", "--set", "model.vocabulary=20000", "--set", "data.source=synthetic"]
    found = advised(tmp_path, *flags, "--devices=2xH200")
    for choice in found["choices"]:
        if choice["balanced"]:
            assert choice["balanced"]["stage_blocks"] == [3, 1] and choice["balanced"]["step"] < choice["step"]
    assert {choice["strategy"] for choice in found["choices"] if choice["balanced"]} == {"pipeline"}
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("torch pipeline, with 3, 1")]
    assert line.endswith("a step --set strategy=pipeline --set accumulate=5 --set stage_blocks=[3,1]")
