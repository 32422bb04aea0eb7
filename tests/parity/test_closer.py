"""Which tensors of a large model are recorded whole once summaries have told where the sides part."""

from types import SimpleNamespace
from typing import Any

import pytest

from parity.pairs import recording
from parity.results import Divergence

NAMES = ("a", "b", "c")
FIRST = Divergence(step=0, kind="activation", name="b", replica=0, bits=0.0, reason="")
RUN = "high/rank-0/step-000000"


def recorded(*stored: str, aliases: dict[str, str] | None = None) -> Any:
    """A trace that holds summaries of tensors of 100 elements; the activations of all three modules are recorded."""
    manifest = SimpleNamespace(
        summarised={RUN: dict.fromkeys(stored, (10, 10))}, aliases={RUN: aliases} if aliases else {}
    )
    return SimpleNamespace(manifest=manifest, open=lambda *_: [f"activation/{name}" for name in NAMES])


@pytest.mark.parametrize(
    ("room", "keys"),
    [
        (99, []),
        (100, ["activation/b"]),
        (200, ["activation/b", "parameter/b.weight"]),
        (300, ["activation/b", "parameter/b.weight", "activation/a"]),
        (1000, ["activation/b", "parameter/b.weight", "activation/a", "activation/c"]),
    ],
)
def test_the_nearest_are_chosen_first(room: int, keys: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MOST_WHOLE", room)
    both = recorded("activation/a", "activation/b", "activation/c", "parameter/b.weight")
    assert recording.nearest(FIRST, both, both) == keys
