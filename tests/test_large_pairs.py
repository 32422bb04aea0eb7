"""Of a large model summaries are recorded, and whole tensors only where these do not match."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from parity.asserts import Session
from parity.pairs import file as files
from parity.pairs import recording
from parity.pairs.compare import compared
from parity.results import CaseResult
from parity.runtime import survey
from parity.runtime.job import Answer, Job

TORCH = """
from torch import nn

def build():
    first, norm, last = nn.Linear(48, 160), nn.LayerNorm(160), nn.Linear(160, 48)
    return nn.Sequential(first, norm, nn.ReLU(), nn.Identity(), last)
"""
KERAS = """
from keras import Sequential, layers

def build(epsilon):
    norm = layers.LayerNormalization(epsilon=epsilon)
    return Sequential([layers.Dense(160), norm, layers.ReLU(), layers.Dense(48)])
"""
PAIR = """
[pair]
name = "wide"
torch = "wide_torch:build"
keras = "wide_keras:build"
keras_kwargs = {{ epsilon = {epsilon} }}
[inputs.x]
shape = [40, 48]
"""


@pytest.fixture(scope="module")
def session(forks: None) -> Iterator[Session]:
    session = Session()
    yield session
    session.close()


@pytest.fixture
def run(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`run(epsilon)`: the result for a port with that epsilon, and of what each recording is."""
    monkeypatch.setattr(survey, "LARGE", 1_000)
    recorded: list[str] = []
    both = recording.both

    def watched(jobs: dict[Any, Job]) -> Any:
        recorded.extend({kind(job) for job in jobs.values() if isinstance(job, Job)})
        return both(jobs)

    monkeypatch.setattr(recording, "both", watched)
    for name, text in {"wide_torch.py": TORCH, "wide_keras.py": KERAS}.items():
        (tmp_path / name).write_text(text)

    def run(epsilon: float, **settings: Any) -> tuple[CaseResult, list[str]]:
        (tmp_path / "wide.toml").write_text(PAIR.format(epsilon=epsilon))
        recorded.clear()
        result = compared(files.load(tmp_path / "wide.toml"), session._backends, tmp_path / "traces", False, **settings)
        return result, recorded

    return run


def kind(job: Job) -> str:
    return ("summaries, some whole" if job.whole else "summaries") if job.summarises else "whole"


def by_summaries(result: CaseResult) -> bool:
    return any("are compared by summaries: --record=full compares them whole" in line for line in result.not_compared)


@pytest.mark.slow
def test_a_match_is_one_by_summaries(run: Any) -> None:
    result, recorded = run(1e-5)
    assert (result.verdict, recorded) == ("match", ["summaries"])
    assert by_summaries(result)


@pytest.mark.slow
def test_all_is_whole_where_that_is_asked_for(run: Any) -> None:
    result, recorded = run(1e-5, whole=True)
    assert (result.verdict, recorded) == ("match", ["whole"])
    assert not by_summaries(result)


@pytest.mark.slow
def test_what_differs_first_is_recorded_whole(run: Any) -> None:
    result, recorded = run(1e-3)
    assert (result.verdict, recorded) == ("diverged", ["summaries", "summaries, some whole"])
    assert [cause.id for cause in result.causes] == ["layer_norm.epsilon"]
    assert by_summaries(result)


@pytest.mark.slow
def test_all_is_whole_where_the_cause_is_not_named_otherwise(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MOST_WHOLE", 1)
    result, recorded = run(1e-3)
    assert (result.verdict, recorded) == ("diverged", ["summaries", "summaries", "whole"])
    assert [cause.id for cause in result.causes] == ["layer_norm.epsilon"]
    assert not by_summaries(result)


@pytest.mark.slow
def test_a_further_recording_that_fails_is_told(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = recording.both

    def failing(jobs: dict[Any, Job]) -> Any:
        answers = watched(jobs)
        is_second = any(isinstance(job, Job) and job.whole for job in jobs.values())
        return dict.fromkeys(answers, Answer(status="error", message="the process ended")) if is_second else answers

    monkeypatch.setattr(recording, "both", failing)
    result, recorded = run(1e-3)
    assert (result.verdict, result.error) == ("error", "backend")
    assert recorded == ["summaries", "summaries, some whole"]
    assert result.reason.startswith("the process ended")
