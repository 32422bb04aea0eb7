"""Models that others published, in both frameworks: what is said of each, against the truth.

    python benchmarks/public.py                 compare the pairs of tests/public/, and write docs/public.md
    python benchmarks/public.py REPORT.json...  write it from reports of `python -m parity.compare --json`

The table with the truths is tests/public/public_table.py.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "public"))

from public_pair import FOLDER, UNKNOWN, PublicPair  # noqa: E402
from public_table import PAIRS  # noqa: E402

PAGE = ROOT / "docs" / "public.md"
PAIRS_PER_PROCESS = 10
TIMEOUT = 300

Case = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="*", type=Path, metavar="REPORT.json")
    flags = parser.parse_args()
    reports = [json.loads(path.read_text()) for path in flags.reports] or list(_compared())
    cases = {case["case"].removeprefix("pair/"): case for report in reports for case in report["cases"]}
    missing = [row.name for row in PAIRS if row.name not in cases]
    if missing:
        raise SystemExit(f"no report holds {', '.join(missing)}; compare these too")
    answers = [Answer(row.varied(), cases[row.name]) for row in PAIRS]
    PAGE.write_text(_page(answers))
    print(_goals(answers))
    for answer in answers:
        if answer.is_right and answer.row.wrong:
            print(f"{answer.row.name} is answered rightly now: take `wrong` out of its row")
    return 0


class Answer:
    """What is said of one pair: its case in the report beside its row in the table."""

    def __init__(self, row: PublicPair, case: Case) -> None:
        self.row, self.verdict = row, case["verdict"]
        first = case["first_divergence"] or {}
        self.is_right = row.is_right(self.verdict, first.get("kind", ""))
        self.ids = {cause["id"] for cause in case["causes"]}
        self.is_named = self.is_right and row.is_named(self.ids)
        self.others = sorted(self.ids - {UNKNOWN} - {cause for cause in self.ids if _fits(row, cause)})
        self.seconds = sum(case["seconds"].values())
        self.crashed = case["error"] == "backend"
        self.rules = _rules(row.name)

    @property
    def told(self) -> tuple[str, ...]:
        """Return the cells of the page's row that the pair can have in common with others."""
        row = self.row
        causes = ", ".join(f"`{cause}`" for cause in sorted(self.ids)) or "-"
        right = "" if self.is_right else f"; **wrong: {row.wrong or self.verdict}**"
        named = "" if self.is_named or not row.causes else "; **not named**"
        begins = f" ({row.begins})" if row.begins else ""
        return f"{row.verdict}{begins}", row.difference or "nothing", row.source or "-", f"{causes}{right}{named}"


def _fits(row: PublicPair, cause: str) -> bool:
    """Return whether a cause is one of those that truly differ."""
    return any(row._replace(causes=(glob,)).is_named({cause}) for glob in row.causes)


def _rules(name: str) -> int:
    """Return the number of rules and of ignored weights that a pair's file needs."""
    pair = tomllib.loads((FOLDER / f"{name}.toml").read_text())
    ignored = pair.get("ignore", {})
    return len(pair.get("weights", [])) + len(ignored.get("torch", [])) + len(ignored.get("keras", []))


def _compared() -> Iterator[dict[str, Any]]:
    """Yield the report of each few pairs, which share two processes with the frameworks."""
    for first in range(0, len(PAIRS), PAIRS_PER_PROCESS):
        flags = [f"--pair={FOLDER / row.name}.toml" for row in PAIRS[first : first + PAIRS_PER_PROCESS]]
        with tempfile.NamedTemporaryFile(suffix=".json") as report:
            command = [sys.executable, "-m", "parity.compare", *flags, f"--timeout={TIMEOUT}"]
            subprocess.run([*command, f"--json={report.name}"], cwd=ROOT, stdout=sys.stderr)
            yield json.loads(Path(report.name).read_text())


def _goals(answers: list[Answer]) -> str:
    """Return the goals and what was reached."""
    differing = [answer for answer in answers if answer.row.causes]
    rows = [
        ("pairs", len(answers), "at least 40"),
        ("crashes", sum(answer.crashed for answer in answers), "0"),
        ("right verdicts", _share([answer.is_right for answer in answers]), "95%"),
        ("without a rule or an ignored weight", _share([not answer.rules for answer in answers]), "90%"),
        ("true differences named", _share([answer.is_named for answer in differing]), "90%"),
        ("pairs with a false cause", _share([bool(answer.others) for answer in answers]), "none"),
        ("median seconds", f"{statistics.median(each.seconds for each in answers if each.seconds):.0f}", "30"),
    ]
    lines = ["| | reached | goal |", "|---|---|---|", *(f"| {what} | {got} | {goal} |" for what, got, goal in rows)]
    return "\n".join(lines)


def _share(told: list[bool]) -> str:
    return f"{sum(told)} of {len(told)} ({100 * sum(told) / len(told):.0f}%)"


def _page(answers: list[Answer]) -> str:
    """Return docs/public.md."""
    lines = []
    for told in dict.fromkeys(answer.told for answer in answers):
        names = ", ".join(answer.row.name for answer in answers if answer.told == told)
        lines.append(f"| {' | '.join((names, *told))} |")
    return "\n".join([INTRODUCTION, _goals(answers), "", HOW_TO_READ, *lines, ""])


INTRODUCTION = """# Public pairs

How often is the answer right for models that others published? These pairs are the same model in PyTorch and in Keras:
KerasHub's backbones and keras.applications against Hugging Face's classes, and networks of well-known tutorials that
were ported by hand. All are small and have random weights. Each is compared as users compare theirs: in its forward
pass, its gradients and three training steps, and on [inputs that its file does not give](variations.md).

`python benchmarks/public.py` compares them and writes this page; `pytest -m "slow or not slow" --whole tests/public`
holds the verdicts on the files' own inputs to the truths in `tests/public/public_table.py`. Five more pairs of this
kind (Hugging Face's GPT-2, Llama, ViT and ResNet) are in `tests/pairs/`.
"""

HOW_TO_READ = """## The pairs

The truth was established without this project: the weights were carried over by KerasHub's converter or by hand, both
models were run in float64, and the sources were read where the outputs differ. For a few pairs only the sources were
read; the table in `tests/public/` says how it was done for each. Behind a truth stands what differs first: the forward
pass, the gradients or the training. An answer that is wrong or names no cause today is marked in bold.

| pairs | truth | what differs | source | causes reported |
|---|---|---|---|---|"""

if __name__ == "__main__":
    sys.exit(main())
