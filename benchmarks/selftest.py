"""The whole self-test, with 300 random clean runs; what it misses goes into docs/selftest.md.

python benchmarks/selftest.py [--clean=N]
"""

import contextlib
import datetime
import io
import os
import sys
import time
from pathlib import Path

from parity import __version__
from parity.selftest.__main__ import main as selftest

TABLE = Path(__file__).parents[1] / "docs" / "selftest.md"
MARK = "<!-- table: written by benchmarks/selftest.py -->"
GOOD = " yes    yes    yes "  # of a row: caught, placed and named
WRITTEN = """

What `python benchmarks/selftest.py` printed on {date}, version {version}, {cores} cores, {minutes:.0f} minutes:

```text
{table}
```
"""


def main() -> int:
    start, printed = time.perf_counter(), io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = selftest(sys.argv[1:] or ["--clean=300"])
    minutes, cores = (time.perf_counter() - start) / 60, len(os.sched_getaffinity(0))
    print(printed.getvalue())
    table = "\n".join(line.rstrip() for line in printed.getvalue().splitlines() if GOOD not in line)
    facts = {"date": datetime.date.today(), "version": __version__, "cores": cores, "minutes": minutes, "table": table}
    TABLE.write_text(TABLE.read_text().partition(MARK)[0] + MARK + WRITTEN.format(**facts))
    return status


if __name__ == "__main__":
    sys.exit(main())
