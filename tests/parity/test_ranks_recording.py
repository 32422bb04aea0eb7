"""Ranks that record a case together, in one process of several threads, and a backend that is started by hand."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from slow import WAIT
from stand_ins import job
from synthetic import NumpySide, record_with, small_case

from parity import standalone
from parity.core.errors import UsageError
from parity.runtime import drive
from parity.runtime.drive import Account, Rank, Run
from parity.runtime.job import Job
from parity.trace.layout import Layout, Transfer
from parity.trace.manifest import Trace

# Ranks that record a case together


class Stages(NumpySide):
    """Stages of one replica: each rank records a part; rank 0 the samples, the last rank the loss."""

    def __init__(self, number: int, of: int = 2) -> None:
        super().__init__("torch")
        self.place = Rank(number, of)

    def rank(self) -> Rank:
        return self.place

    def run(self, run: Run) -> Account:
        (recorder,) = run.recorders.values()
        number = self.place.number
        recorder.add("parameter", f"w{number}", np.full(2, float(number)))
        recorder.next_step()
        if number:
            recorder.add("loss", "loss", np.asarray(1.0))
        recorder.next_step()
        transfer = Transfer(what="activation", source=number, target=1, bytes=8)
        parameters = {f"w{number}": [number]}
        layout = Layout(devices=["CPU", "CPU"], parameters=parameters, transfers=[] if number else [transfer])
        return Account(layout, {f"linear{number}": "linear"})


def together(sides: list[drive.Side], task: Job) -> None:
    """Every rank in a thread of its own."""
    threads = [threading.Thread(target=drive.record, args=(task, side)) for side in sides]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=WAIT)
        assert not thread.is_alive()


def test_rank_0_puts_the_parts_together(tmp_path: Path) -> None:
    task = job(tmp_path, "simple_block/pipeline", 2, steps=1)
    together([Stages(0), Stages(1)], task)
    trace = Trace(Path(task.folder))
    facts = trace.manifest
    assert facts.replicas == [[0, 1]]
    assert sorted(facts.files) == [
        "low/rank-0/initial", "low/rank-1/initial", "low/rank-1/step-000000",
    ]  # fmt: skip
    assert facts.modules == {"linear0": "linear", "linear1": "linear"}
    assert facts.layout.parameters == {"w0": [0], "w1": [1]}
    assert facts.layout.transfers == [Transfer(what="activation", source=0, target=1, bytes=8)]
    assert list(trace.open("low", "initial")) == ["parameter/w0", "parameter/w1"]
    assert list(trace.open("low", "step-000000")) == ["loss/loss"]
    left = {path.name for path in Path(task.folder).iterdir()}
    assert left == {"manifest.json", "low"}  # the parts are gone


class Summing(Stages):
    """Each rank gives so many bytes into a collective: one more than twice the rank before."""

    def __init__(self, number: int, of: int, replicas: int) -> None:
        super().__init__(number, of)
        self.replicas = replicas

    def run(self, run: Run) -> Account:
        given = {"all_reduce": 2 ** (self.place.number + 1) - 1}
        account = super().run(run)
        return account._replace(layout=replace(account.layout, collectives=given, replicas=self.replicas))


@pytest.mark.parametrize(
    ("name", "replicas", "collectives"),
    [
        ("simple_block/hybrid", 2, 7 + 15),  # ranks 2 and 3 are the stages of the second replica
        ("linear_stack/pipeline", 1, 1 + 3 + 7 + 15),
        ("linear_stack/send_recv", 1, 1 + 3 + 7 + 15),
        ("simple_block/ddp", 4, 15),
        ("simple_block/tensor_parallel", 1, 15),
    ],
)
def test_the_collectives_of_a_replica_are_those_of_all_its_stages(
    name: str, replicas: int, collectives: int, tmp_path: Path
) -> None:
    task = job(tmp_path, name, 4, steps=1)
    together([Summing(number, 4, replicas) for number in range(4)], task)
    assert Trace(Path(task.folder)).manifest.layout.collectives == {"all_reduce": collectives}


class Parts(NumpySide):
    """Notes the inputs of each micro-batch as an activation, in the order of the batch."""

    def run(self, run: Run) -> Account:
        (recorder,) = run.recorders.values()
        recorder.next_step()
        for (micro_batches,) in run.dataset.steps():
            recorder.drew(np.concatenate([batch.indices for batch in micro_batches]))
            for batch in micro_batches:
                recorder.add("activation", "inputs", batch.inputs[0])
            recorder.next_step()
        (batch,) = run.dataset.evaluation()
        recorder.drew(batch.indices)
        recorder.add("activation", "inputs", batch.inputs[0])
        recorder.next_step()
        return Account(Layout(devices=["CPU"], parameters={}), {})


@pytest.mark.parametrize(("batch", "parts"), [(8, 1), (8, 4), (7, 3)])
def test_the_witness_turns_every_micro_batch_back(batch: int, parts: int, tmp_path: Path) -> None:
    trace = record_with(Parts("torch"), tmp_path, small_case(data={"batch": batch}, accumulate=parts, steps=2))
    for stem, count in (("step-000000", parts), ("step-000001", parts), ("step-000002", 1)):
        high, witness = trace.open("high", stem), trace.open("witness", stem)
        assert list(high) == list(witness)
        assert len(high) == 1 + count
        assert [key for key in high if not np.array_equal(high[key], witness[key])] == []


class Failing(Stages):
    def run(self, run: Run) -> Account:
        raise ZeroDivisionError


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_fails_leaves_nothing_of_an_earlier_recording(rank: int, tmp_path: Path) -> None:
    """What rank 1 left must not be taken for a part of this recording, nor the manifest for its end."""
    task = job(tmp_path, "simple_block/pipeline", 2, steps=1)
    if rank:
        drive.record(task, Stages(1))
    else:
        together([Stages(0), Stages(1)], task)
    before = {path.name for path in Path(task.folder).iterdir()}
    assert before == {"low", "rank-1.json" if rank else "manifest.json"}
    with pytest.raises(ZeroDivisionError):
        drive.record(task, Failing(rank))
    assert {path.name for path in Path(task.folder).iterdir()} == {"low"}


# By hand


@pytest.fixture
def by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[Path]]]:
    """`python -m torch_impl FLAGS`, with the numpy network for torch; returns the folders of the traces."""
    monkeypatch.setenv("PARITY_DEVICES", "")

    def run(*flags: str, side: drive.Side | None = None) -> list[Path]:
        args = ["--set", "data.source=synthetic", "--set", "optimizer.momentum=0.0", f"--out={tmp_path}/out", *flags]
        assert standalone.main("torch_impl", "torch", lambda: side or NumpySide("torch"), args) == 0
        return sorted(path.parent for path in (tmp_path / "out").rglob("manifest.json"))

    return run


def test_a_backend_by_hand_records_each_case_into_its_folder(by_hand: Any, tmp_path: Path) -> None:
    flags = "--case=simple_block/single", "--case=simple_block/single@schedule", "--steps=2", "--devices=cpu:3"
    folders = by_hand(*flags)
    assert folders == [tmp_path / "out/simple_block" / name / "torch" for name in ("single", "single@schedule")]
    trace = Trace(folders[0])
    assert (trace.manifest.runs, trace.case.steps, trace.case.devices) == (["low", "high", "witness"], 2, 3)
    assert os.environ["PARITY_DEVICES"] == "cpu:3"


@pytest.mark.parametrize(
    ("flags", "side", "said"),
    [
        (["--case=simple_block/ddp"], None, "simple_block/ddp on cpu:2 needs 2 processes of torch_impl, received 1"),
        (["--case=simple_block/single"], Stages(0), "needs 1 process of torch_impl, received 2"),
        (["--case=simple_block/ddp", "--devices=cpu:3"], Stages(0), "on cpu:3 needs 3 processes"),
        (["--case=simple_block/hybrid"], None, "simple_block/hybrid: hybrid trains replicas of 2 stages each"),
        (["--case=simple_block/single", "--devices=tpu:2"], None, "expected auto, cpu:N or gpu:N"),
        (["--case=simple_blok/single"], None, "did you mean 'simple_block/single'"),
    ],
)
def test_a_case_that_these_processes_cannot_run_is_refused(
    flags: list[str], side: Any, said: str, by_hand: Any
) -> None:
    with pytest.raises(UsageError) as error:
        by_hand(*flags, side=side)
    assert said in str(error.value)
