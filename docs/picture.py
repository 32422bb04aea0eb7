"""Make the picture at the top of the README: `python docs/picture.py`, from a checkout with the package installed.

The picture is what the command below prints on a terminal with colours, in a folder that holds the README's files.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "comparison.svg"
COMMAND = "python -m parity.compare --case=two_linear/* --pair=mlp.toml"
COLUMNS = 112
FILE = re.compile(r"```(?:python|toml)\n# (\S+)\n(.*?)```", re.DOTALL)  # a file shown in the README: its name, its text


def printed() -> str:
    """Return what the command prints, with the terminal's escape codes."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in FILE.findall((ROOT / "README.md").read_text()):
            (Path(folder) / name).write_text(text)
        terminal = {"FORCE_COLOR": "1", "COLUMNS": str(COLUMNS), "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
        ended = subprocess.run(
            [sys.executable, *COMMAND.split()[1:]],
            cwd=folder, env=os.environ | terminal, stdout=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    if ended.returncode != 1:  # the port in the README is wrong on purpose
        raise SystemExit(f"{COMMAND}: expected status 1, received {ended.returncode}")
    return ended.stdout


def drawn(text: str) -> str:
    """Return the picture of a text with escape codes, as SVG."""
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
        console.print(Text.from_ansi(text))
    return console.export_svg(title=COMMAND, unique_id="comparison")


def main() -> None:
    """Write the picture."""
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(drawn(printed()))


if __name__ == "__main__":
    main()
