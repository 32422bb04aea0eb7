"""A sample of mutants, drawn by a seed and judged: each that computes something else is caught."""

import json
import re
from pathlib import Path

import mutants
import pytest
from mutating.page import edit

COUNT = 16
PAIRS = "mini_gpt,super_resolution,vgg,pointnet"
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_sample_is_caught(tmp_path):
    path = tmp_path / "lines.jsonl"
    mutants.run(mutants.tasks(PAIRS, COUNT), 8, 1, path)
    lines = list(mutants.read(path).values())
    assert len(lines) == COUNT
    assert {line["status"] for line in lines} <= {"real", "equivalent", "broken"}, lines
    real = [line for line in lines if line["status"] == "real"]
    assert len(real) >= COUNT // 4
    assert [edit(line) for line in real if not line["caught"]] == []
    false = [edit(line) for line in real if line["false"]]
    assert len(false) <= most_false(len(real)), false


def most_false(real: int) -> int:
    """How many mutants of a sample may have a false cause, by the share in docs/mutants.md, and one by chance."""
    share = re.search(r"with a false cause \| (\d+) of (\d+)", mutants.PAGE.read_text())
    assert share
    return 1 + int(share[1]) * real // int(share[2])


def test_mutants_are_the_first_of_each_pair_first():
    tasks = mutants.tasks("vgg,unet", 5)
    assert [(path.stem, number) for path, number in tasks] == [
        ("vgg", 0), ("unet", 0), ("vgg", 1), ("unet", 1), ("vgg", 2)
    ]  # fmt: skip


def test_pairs_that_truly_differ_are_not_mutated():
    assert "vgg" in mutants.names("*")
    assert not {"bert", "xlnet", "resnet50"} & set(mutants.names("*"))


def test_what_is_finished_is_kept_and_not_repeated(tmp_path, monkeypatch):
    made = []

    class Stub:
        def __init__(self, seed: int, kept: Path) -> None: ...

        def close(self) -> None: ...

        def mutant(self, pair: Path, number: int) -> dict:
            made.append((pair.stem, number))
            if number == 1:
                raise KeyError("a failure of one mutant")
            return {"seed": 7, "pair": pair.stem, "number": number, "status": "equivalent", "kind": "axis"}

    monkeypatch.setattr(mutants, "Campaign", Stub)
    lines, out = tmp_path / "lines.jsonl", tmp_path / "page.md"
    flags = ["mutants.py", "--pairs=vgg", f"--lines={lines}", f"--out={out}"]
    for count in (1, 3):
        monkeypatch.setattr("sys.argv", [*flags, f"--count={count}"])
        assert mutants.main() == 0
    assert made == [("vgg", 0), ("vgg", 1), ("vgg", 2)]
    statuses = [json.loads(line)["status"] for line in lines.read_text().splitlines()]
    assert statuses == ["equivalent", "failed", "equivalent"]
    assert "3 mutants of 1 pairs: 0 real, 2 equivalent, 0 broken, 1 failed" in out.read_text()
