"""The whole soundness table at every precision; its figures go into docs/soundness.md.

python benchmarks/soundness.py [PRECISION ...] [--rows=GLOB] [--out=FILE]
"""

import argparse
import datetime
import sys
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from parity import __version__
from parity.asserts import Session
from parity.results import CaseResult

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests" / "soundness"))

from rows import Row, pair, speaks  # noqa: E402
from table import ROWS  # noqa: E402

PAGE = ROOT / "docs" / "soundness.md"
PRECISIONS = ("float32", "bfloat16", "float16")
MARK = "<!-- figures: written by benchmarks/soundness.py -->"
IDENTICAL = ("same", "chaos", "vacuous")
PASSED = ("match", "subprecision")
LONGEST = 160  # characters of a reason


class Said(NamedTuple):
    """What was said of a row at a precision."""

    row: Row
    precision: str
    verdict: str
    reason: str
    right: bool

    @property
    def is_false_match(self) -> bool:
        return self.row.truth not in IDENTICAL and not self.right and self.verdict in PASSED

    @property
    def is_alarm(self) -> bool:
        return self.row.truth in IDENTICAL and not self.right and self.verdict not in PASSED

    @property
    def line(self) -> str:
        return f"{self.row.name:36} {self.precision:9} {self.row.truth:12} {self.verdict:12} {self.reason}".rstrip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("precisions", nargs="*", default=PRECISIONS, metavar="PRECISION")
    parser.add_argument("--rows", default="*", metavar="GLOB")
    parser.add_argument("--out", type=Path, default=PAGE, metavar="FILE")
    flags = parser.parse_args()
    start = time.perf_counter()
    found = [one for precision in flags.precisions for one in judged(precision, flags.rows)]
    minutes = (time.perf_counter() - start) / 60
    printed = text(found, minutes)
    print(printed)
    before = flags.out.read_text().partition(MARK)[0] if flags.out.exists() else ""
    flags.out.write_text(f"{before}{MARK}\n\n{printed}\n")
    return int(any(one.is_false_match for one in found))


def judged(precision: str, glob: str) -> Iterator[Said]:
    """Every row of the table at a precision, on one pair of backends."""
    session = Session()
    for row in (row for row in ROWS if fnmatchcase(row.name, glob)):
        try:
            result = session.compared(pair(row, session.folder, precision))
        except Exception as error:  # one row must not end the others
            result = CaseResult(case=row.name, verdict="error", reason=f"{type(error).__name__}: {error}")
        found = Said(row, precision, result.verdict, reason(result), speaks(row, result))
        print(f"{'right' if found.right else 'WRONG'} {found.line}", file=sys.stderr, flush=True)
        yield found
    session.close()


def reason(result: CaseResult) -> str:
    first = result.first_divergence
    said = f"step {first.step}, {first.kind}, {first.name}: {first.reason}" if first else result.reason
    findings = ", ".join(f"{one.id} ({one.side})" for one in result.findings[:2])
    return " ".join(f"{said} {findings}".split())[:LONGEST]


def text(found: list[Said], minutes: float) -> str:
    """Return the figures of each precision, as a table."""
    date = datetime.date.today().isoformat()
    head = f"Of {date}, version {__version__}, {len(found)} comparisons in {minutes:.0f} minutes."
    precisions = dict.fromkeys(one.precision for one in found)
    figures = [_figure(name, [one for one in found if one.precision == name]) for name in precisions]
    columns = "| precision | rows | differ | false matches | identical | alarms | otherwise wrong |"
    return "\n".join([head, "", columns, "|---|---|---|---|---|---|---|", *figures])


def _figure(precision: str, rows: list[Said]) -> str:
    identical = sum(one.row.truth in IDENTICAL for one in rows)
    false, alarms = sum(one.is_false_match for one in rows), sum(one.is_alarm for one in rows)
    other = sum(not one.right for one in rows) - false - alarms
    counts = [len(rows), len(rows) - identical, false, identical, alarms, other]
    return f"| {precision} | {' | '.join(map(str, counts))} |"


if __name__ == "__main__":
    sys.exit(main())
