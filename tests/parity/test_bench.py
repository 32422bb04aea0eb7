"""python -m parity.bench: what is measured, and what is made of it."""

import json
import random
import sys
import types
from typing import ClassVar

import msgspec
import pytest

from parity.bench import lanes
from parity.bench.__main__ import main
from parity.bench.lanes import Burst, Bursts, endless, energy_between, measured, place, read_energy
from parity.bench.report import plots, show_timed
from parity.bench.results import (
    Benchmark,
    LaneTimes,
    Machine,
    Timed,
    check_machine,
    interval,
    quartiles,
    slower,
    this_machine,
)
from parity.config import cases
from parity.core.errors import UsageError
from parity.report.output import Console
from parity.runtime.drive import Rank
from parity.runtime.job import BenchJob

SINGLE = "simple_block/single"


@pytest.mark.parametrize(("count", "rank"), [(1, 1), (5, 1), (6, 1), (8, 1), (9, 2), (10, 2), (20, 6), (50, 18)])
def test_an_interval_is_that_of_the_sign_test(count, rank):
    """The ranks of the published tables (Conover, table A3) for the 95% interval of a median."""
    samples = [float(number) for number in range(1, count + 1)]
    random.Random(0).shuffle(samples)
    found = interval(samples)
    assert (found.low, found.middle, found.high) == (rank, (count + 1) / 2, count + 1 - rank)


def test_quartiles_of_one_sample_are_the_sample():
    assert quartiles([2.0]) == (2.0, 2.0)
    assert quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == (2.0, 4.0)


class StandIn:
    """A lane whose steps take what they are said to take; the bursts of all lanes are noted in order."""

    called: ClassVar[list[str]] = []

    def __init__(self, name, step, noise=0.0, load=None):
        self.name, self.step, self.noise, self.load = name, step, noise, load or [1.0]
        self.samples, self.joules = [], []
        self.draw = random.Random(name)

    def burst(self, steps):
        self.called.append(self.name)
        share = self.load[(len(self.called) - 1) // 2 % len(self.load)]
        return steps * self.step * share * (1 + self.noise * self.draw.random())


def test_ratios_are_those_within_a_round():
    """Another load that slows down both lanes tenfold for a while does not move their ratio."""
    StandIn.called.clear()
    load = [1.0] * 6 + [10.0] * 6
    stand_ins = [StandIn("a", 0.01, load=load), StandIn("b", 0.02, load=load)]
    first, second = measured(stand_ins, 30)
    assert first == (1.0, 1.0, 1.0)
    assert second.middle == pytest.approx(2.0)
    assert len(stand_ins[1].samples) == lanes.ROUNDS


def test_each_lane_comes_first_as_often_as_the_others():
    StandIn.called.clear()
    measured([StandIn("a", 0.01), StandIn("b", 0.02)], 30)
    rounds = StandIn.called[-2 * lanes.ROUNDS :]
    assert [rounds[i] for i in range(0, len(rounds), 2)] == ["a", "b"] * (lanes.ROUNDS // 2)


def test_a_training_stops_where_a_burst_ends(tmp_path):
    """Steps are counted from burst to burst, and each burst writes what it has measured."""
    job = BenchJob(case=cases.resolve(SINGLE), folder=str(tmp_path))
    given = iter([msgspec.structs.replace(job, number=1, steps=3), KeyboardInterrupt()])
    seen = []

    def following():
        seen.append(len(steps))
        if isinstance(burst := next(given), BaseException):
            raise burst
        return burst

    steps = []
    bursts = Bursts(job, Rank(0, 1), following, lambda: None, lambda: 7, None, None)
    with pytest.raises(KeyboardInterrupt):
        for step in endless(iter("ab")):
            steps.append(step)
            bursts.on_step()
    assert (seen, steps) == ([1, 4], list("abab"))
    found = [msgspec.json.decode((tmp_path / f"{number}-0.json").read_bytes(), type=Burst) for number in (0, 1)]
    assert [burst.peak for burst in found] == [7, 7]
    assert place(given and msgspec.structs.replace(job, number=1), 0).exists()


def test_energy_is_the_difference_of_two_readings(tmp_path, monkeypatch):
    monkeypatch.setattr(lanes, "_gpus", list)
    assert read_energy(tmp_path) is None
    for number, value in enumerate(("5000000", "1500000")):
        (tmp_path / f"intel-rapl:{number}").mkdir()
        (tmp_path / f"intel-rapl:{number}" / "energy_uj").write_text(value)
    (tmp_path / "intel-rapl:0:0").mkdir()  # a part of a processor, which counts within it
    before = read_energy(tmp_path)
    assert before == {"intel-rapl:0": 5.0, "intel-rapl:1": 1.5}
    assert energy_between(before, {"intel-rapl:0": 6.0, "intel-rapl:1": 1.5}) == 1.0
    assert energy_between(before, {"intel-rapl:0": 1.0, "intel-rapl:1": 1.5}) is None  # the counter has started anew
    assert energy_between(None, before) is None


def test_gpus_that_count_their_energy_are_read(tmp_path, monkeypatch):
    class NVMLError(Exception):
        pass

    def consumed(handle):
        if handle is None:
            raise NVMLError("not supported")
        return 1000 * handle

    def reading(*handles):
        lanes._gpus.cache_clear()
        nvml = {
            "NVMLError": NVMLError,
            "nvmlInit": lambda: None,
            "nvmlDeviceGetCount": lambda: len(handles),
            "nvmlDeviceGetHandleByIndex": handles.__getitem__,
            "nvmlDeviceGetTotalEnergyConsumption": consumed,
        }
        monkeypatch.setitem(sys.modules, "pynvml", types.SimpleNamespace(**nvml))
        return read_energy(tmp_path)

    try:
        assert reading(3, 5) == {"GPU 0": 3.0, "GPU 1": 5.0}
        assert reading(None) is None  # before Volta
    finally:
        lanes._gpus.cache_clear()


NAMES = {"torch": ("torch eager", "torch.compile"), "keras": ("keras tf.function", "keras XLA")}


def benchmark(*milliseconds: float, **sides: list[float]) -> Benchmark:
    """The milliseconds of torch's rows, or those of the rows of each side."""
    lanes = []
    for side, times in (sides or {"torch": list(milliseconds)}).items():
        for name, time in zip(NAMES[side], times, strict=False):
            samples = [time / 1e3 * (1 + 0.01 * number) for number in range(8)]
            row = LaneTimes(name=name, side=side, mode="eager", strategy="single", step=interval(samples))
            row.samples = samples
            lanes.append(row)
    timed = Timed(case="a", batch=8, devices="cpu:1", verdict="match", lanes=lanes)
    return Benchmark(machine=this_machine(), timed=[timed])


BEFORE = {"torch": [10.0, 8.0], "keras": [20.0, 15.0]}


@pytest.mark.parametrize(
    ("now", "slow"),
    [
        ({"torch": [30.0, 24.0], "keras": [60.0, 45.0]}, {}),  # the machine is busier: all are three times as slow
        ({"torch": [10.0, 8.0], "keras": [40.0, 15.0]}, {"keras tf.function": 2.0}),
        ({"torch": [10.0, 8.0], "keras": [40.0, 30.0]}, {"keras XLA": 2.0, "keras tf.function": 2.0}),
        ({"torch": [20.0, 8.0], "keras": [20.0, 15.0]}, {"torch eager": 2.0}),
        ({"torch": [15.0, 48.0], "keras": [30.0, 22.5]}, {"torch.compile": 4.0}),  # busier, and one is slower besides
        ({"torch": [30.0, 28.0], "keras": [60.0, 45.0]}, {}),  # much busier, which one row suffers from a little more
        ({"torch": [10.0, 8.0], "keras": [5.0, 4.0]}, {}),  # one side has become faster, the other is as it was
        ({"torch": [15.0, 12.0], "keras": [15.0, 22.5]}, {}),  # busier, and one row has become faster
        ({"torch": [20.0]}, {"torch eager": None}),  # nothing stands beside it
    ],
)
def test_what_is_slower_beside_the_other_side_is_told(now, slow):
    lines = list(slower(benchmark(**BEFORE), benchmark(**now)))
    assert [line.partition(" (")[0] for line in lines] == [f"a, batch 8, cpu:1, {name}" for name in slow]
    for line, times in zip(lines, slow.values(), strict=True):
        assert (f", {times:.2f} times beside " in line) if times else ("beside" not in line)


def test_what_is_slower_than_its_interval_allows_is_told():
    assert list(slower(benchmark(10), benchmark(10.5))) == []
    assert list(slower(benchmark(10), benchmark(5))) == []
    (line,) = slower(benchmark(10), benchmark(20))
    assert line.startswith(
        "a, batch 8, cpu:1, torch eager (single): 20.70 ms a step, 2.00 times the 10.35 ms of before"
    )


def test_times_of_another_machine_are_refused():
    other = msgspec.structs.replace(benchmark(10), machine=Machine(processor="Z80", cores=1, system="CP/M"))
    with pytest.raises(UsageError, match=r"--against=old.json: of another machine \(Z80, 1 core, CP/M\), this one is"):
        check_machine(other, benchmark(10), "old.json")


def test_two_benchmarks_without_a_common_row_are_refused():
    other = benchmark(10)
    other.timed[0].batch = 16
    with pytest.raises(UsageError, match="none of its rows is timed now"):
        list(slower(benchmark(10), other))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([f"--case={SINGLE}", "--sweep", "batch=8,x"], "expected batch=N,N or devices=N,N"),
        ([f"--case={SINGLE}", "--sweep", "steps=3"], "expected batch=N,N or devices=N,N"),
        (["--case=transformer/hybrid", "--sweep", "devices=3"], "hybrid trains replicas of 2 stages each"),
        ([f"--case={SINGLE}", "--against=/no/such.json"], "No such file or directory; expected a file that --save"),
        ([f"--case={SINGLE}", "--html=/no/such/folder/page.html"], "--html"),
        (["--pair=tests/pairs/convnet.toml", "--sweep", "batch=8"], "a pair's batch is in the shapes of its inputs"),
    ],
)
def test_bad_input_gets_one_line(flags, said):
    with pytest.raises(UsageError) as raised:
        main(flags)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_no_benchmark_is_refused(tmp_path):
    path = tmp_path / "times.json"
    path.write_text('{"cases": []}')
    with pytest.raises(UsageError, match="expected a file that --save has written"):
        main([f"--case={SINGLE}", f"--against={path}"])


@pytest.mark.slow
def test_a_case_is_timed_on_both_sides_and_compared_with_before(tmp_path, capsys):
    """Times are real, the page and the file are whole; an earlier file with smaller times fails."""
    path, page = tmp_path / "times.json", tmp_path / "page.html"
    flags = [f"--case={SINGLE}", "--devices=cpu:1", "--seconds=0.1", "--mode=eager", "--mode=graph"]
    assert main([*flags, f"--save={path}", f"--html={page}"]) == 0
    printed = capsys.readouterr().out
    assert f"{SINGLE}, batch 32, cpu:1: match" in printed
    assert max(map(len, printed.splitlines()[1:5])) <= 80
    assert "keras tf.function" in page.read_text()
    report = json.loads(path.read_text())
    lanes = {lane["name"]: lane for lane in report["timed"][0]["lanes"]}
    assert list(lanes) == ["torch eager", "keras eager", "keras tf.function"]
    for lane in lanes.values():
        assert 0 < lane["step"][0] <= lane["step"][1] <= lane["step"][2] < 10
        assert lane["per_second"] == pytest.approx(32 / lane["step"][1])
        assert lane["peak"] > 50e6 and lane["start"] > 0 and lane["first"] > 0
    assert lanes["torch eager"]["parts"]["forward"] > 0
    assert lanes["torch eager"]["parts"]["communication"] is None  # there is nobody to send to
    assert lanes["keras tf.function"]["parts"] is None  # they cannot be told apart in a graph
    for slowed, status in (list(lanes), 0), (["torch eager"], 1):  # a busier machine; torch alone
        timed = json.loads(json.dumps(report))
        for lane in timed["timed"][0]["lanes"]:
            factor = 1e-3 if lane["name"] in slowed else 1.0
            lane["step"], lane["samples"] = ([factor * each for each in lane[name]] for name in ("step", "samples"))
        path.write_text(json.dumps(timed))
        assert main([*flags, "--mode=eager", f"--against={path}"]) == status
        assert ("slower: " in capsys.readouterr().out) == bool(status)


@pytest.mark.slow
def test_where_nothing_can_begin_it_is_told_why(capsys):
    assert main(["--case=two_linear/pipeline", "--mode=compile", "--seconds=0.1"]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "not timed: nothing could be timed: torch.compile: this strategy trains a Pipeline" in printed


@pytest.mark.slow
def test_two_different_computations_are_not_timed(capsys):
    assert main(["--pair=tests/pairs/lstm_trained.toml", "--mode=eager", "--seconds=0.1"]) == 1
    assert "not timed: the two sides are not the same computation" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "rows"),
    [
        (["--case=simple_block/ddp@workers"], 4),
        (["--case=simple_block/data_parallel@fit"], 4),
        (["--case=simple_block/fsdp"], 2),
        (["--pair=tests/pairs/convnet.toml"], 2),
        (["--case=simple_block/single", "--sweep", "batch=8,16"], 2),
    ],
)
def test_every_kind_of_training_is_timed(flags, rows, tmp_path):
    path = tmp_path / "times.json"
    usual = ["--mode=eager", "--mode=graph", "--seconds=0.1"]
    assert main([*flags, *usual, f"--save={path}", "--quiet"]) == 0
    for timed in msgspec.json.decode(path.read_bytes(), type=Benchmark).timed:
        usually = [lane for lane in timed.lanes if (lane.side, lane.mode) != ("keras", "eager")]
        assert len(usually) == rows
        assert all(lane.step and not lane.why_not for lane in timed.lanes)


def test_what_cannot_be_timed_is_told_with_the_reason(capsys):
    row = LaneTimes(name="keras XLA", side="keras", mode="xla", strategy="ddp", is_alone=True, why_not="elsewhere")
    found = benchmark(10)
    found.timed[0].lanes.append(row)
    show_timed(Console(sys.stdout), found.timed[0])
    assert "keras XLA, ddp: not timed: elsewhere" in capsys.readouterr().out


def swept(batch: int, devices: str, per_second: float) -> Timed:
    lane = LaneTimes(name="torch <eager>", side="torch", mode="eager", per_second=per_second)
    return Timed(case="a", batch=batch, devices=devices, verdict="match", lanes=[lane])


def test_a_sweep_is_drawn_by_what_was_varied():
    assert list(plots([swept(8, "cpu:1", 1.0)])) == []
    (plot,) = plots([swept(8, "cpu:1", 1.0), swept(32, "cpu:1", 4.0), swept(32, "cpu:1", 4.0)])
    assert "a, cpu:1: samples per second by batch" in plot
    assert "torch &lt;eager&gt;, batch 32: 4 samples per second" in plot
    by_devices = list(plots([swept(8, "cpu:1", 1.0), swept(8, "cpu:2", 1.5)]))
    assert ["batch 8: samples per second by devices" in plot for plot in by_devices] == [True]
