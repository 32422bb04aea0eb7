"""Make the picture of the benchmark: `python docs/bench_picture.py`, from a checkout with the package installed.

It shows the times of a real run of the command below, which are kept beside it: `--draw` draws them again without
another run.
"""

import os
import subprocess
import sys

import msgspec
import picture
from rich.console import Console

from parity.bench.report import show_end, show_timed
from parity.bench.results import Benchmark

TIMES = picture.PICTURE.parent / "bench.json"
PICTURE = picture.PICTURE.parent / "bench.svg"
COMMAND = "python -m parity.bench --case=transformer/single --devices=cpu:1"
COLUMNS = 90


def run() -> None:
    """Run the command, and keep its times."""
    flags = [*COMMAND.split()[1:], f"--save={TIMES.name}", "--quiet"]
    variables = os.environ | {"PYTHONPATH": str(picture.ROOT)}
    subprocess.run([sys.executable, *flags], cwd=TIMES.parent, env=variables, check=True)


def drawn() -> str:
    """Return the picture of the times that are kept, as SVG."""
    benchmark = msgspec.json.decode(TIMES.read_bytes(), type=Benchmark)
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True, highlight=False)
        for timed in benchmark.timed:
            show_timed(console, timed)
        show_end(console, benchmark)
    return console.export_svg(title=COMMAND, unique_id="bench")


def main() -> None:
    """Write the picture."""
    if "--draw" not in sys.argv[1:]:
        run()
    PICTURE.write_text(drawn())


if __name__ == "__main__":
    main()
