"""Faults in models that nobody has planted by hand: ports mutated at random, and what is said of each.

    python benchmarks/mutants.py --seed 7 --count 300 [--pairs=GLOB,GLOB] [--jobs 2] [--lines FILE.jsonl]
    python benchmarks/mutants.py --lines FILE.jsonl --count 0     write docs/mutants.md from what is finished

Each mutant's line is appended to the file of lines when it is finished; run again, what is there is not repeated. What
is counted is told in docs/mutants.md and, in full, in benchmarks/mutating/score.py.
"""

import argparse
import json
import queue
import sys
import tempfile
import threading
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "public"))

from mutating.campaign import Campaign, Line  # noqa: E402
from mutating.page import page, summary  # noqa: E402
from mutating.score import scored  # noqa: E402
from public_pair import FOLDER  # noqa: E402
from public_table import PAIRS  # noqa: E402

PAGE = ROOT / "docs" / "mutants.md"
LINES = Path(tempfile.gettempdir()) / "mutants.jsonl"
CLEAN = ("match", "subprecision")  # the truth of the pairs that are mutated
Task = tuple[Path, int]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--count", type=int, default=300, help="mutants, those that turn out to be equivalent included")
    parser.add_argument("--pairs", default="*", help="globs of pairs' names, separated by commas")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--lines", type=Path, default=LINES, metavar="FILE", help="where finished mutants are kept")
    parser.add_argument("--out", type=Path, default=PAGE, metavar="FILE")
    flags = parser.parse_args()
    done = read(flags.lines)
    waiting = [task for task in tasks(flags.pairs, flags.count) if (flags.seed, task[0].stem, task[1]) not in done]
    try:
        run(waiting, flags.seed, flags.jobs, flags.lines)
    except KeyboardInterrupt:
        print("interrupted: the table is of what is finished", file=sys.stderr)
    lines = list(read(flags.lines).values())
    flags.out.write_text(summary(lines))
    print(page(lines))
    return 0


def names(globs: str) -> list[str]:
    """Return the pairs that are mutated: public ones whose truth is a match, or a difference that float32 hides."""
    return [
        row.name
        for row in PAIRS
        if row.verdict in CLEAN and not row.wrong and any(fnmatchcase(row.name, glob) for glob in globs.split(","))
    ]


def tasks(globs: str, count: int) -> list[Task]:
    """Return so many mutants, the first of each pair first."""
    pairs = [FOLDER / f"{name}.toml" for name in names(globs)]
    return [(pairs[number % len(pairs)], number // len(pairs)) for number in range(count if pairs else 0)]


def read(path: Path) -> dict[tuple[int, str, int], Line]:
    """Return the finished mutants of a file."""
    lines = [scored(json.loads(text)) for text in path.read_text().splitlines()] if path.exists() else []
    return {(line["seed"], line["pair"], line["number"]): line for line in lines}


def run(waiting: list[Task], seed: int, jobs: int, path: Path) -> None:
    """Run the mutants with so many workers, each with pairs of its own, and append what is known of each to a file."""
    pairs = list(dict.fromkeys(pair for pair, _ in waiting))
    shares = [[task for task in waiting if pairs.index(task[0]) % jobs == job] for job in range(jobs)]
    finished: queue.SimpleQueue[Line] = queue.SimpleQueue()
    ended = threading.Event()
    with tempfile.TemporaryDirectory(prefix="mutants-kept-") as kept:
        workers = [threading.Thread(target=work, args=(share, finished, seed, Path(kept), ended)) for share in shares]
        for worker in workers:
            worker.start()
        try:
            with path.open("a") as file:
                for number in range(len(waiting)):
                    line = finished.get()
                    file.write(json.dumps(line) + "\n")
                    file.flush()
                    print(f"{number + 1}/{len(waiting)} {short(scored(line))}", file=sys.stderr, flush=True)
        finally:
            ended.set()
            for worker in workers:
                worker.join()


def work(todo: list[Task], finished: "queue.SimpleQueue[Line]", seed: int, kept: Path, ended: threading.Event) -> None:
    """Run mutants until the campaign is ended."""
    campaign = Campaign(seed, kept)
    try:
        for pair, number in todo:
            if ended.is_set():
                return
            try:
                finished.put(campaign.mutant(pair, number))
            except Exception as error:  # a failure of this program must not end the campaign, and stands in the table
                said = f"{type(error).__name__}: {error}"
                finished.put({"pair": pair.stem, "number": number, "seed": seed, "status": "failed", "error": said})
    finally:
        campaign.close()


def short(line: Line) -> str:
    """Return a mutant in a line."""
    told = [name for name in ("caught", "placed", "named", "repaired") if line.get(name)]
    told += [f"FALSE {cause['id']}" for cause in line.get("false", [])]
    if line["status"] == "real" and not line["caught"]:
        told.append("MISSED")
    where = f"{line.get('file', '')}:{line.get('first', '')} {line.get('kind', '')}"
    return f"{line['pair']} {where}: {line['status']} {' '.join(told)} {line.get('error', '')[:100]}"


if __name__ == "__main__":
    sys.exit(main())
