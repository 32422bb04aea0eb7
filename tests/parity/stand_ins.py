"""Stand-ins for the interpreters of ranks: each does what a text says, and leaves its rank and process id behind."""

import contextlib
import re
import sys
from pathlib import Path
from typing import Any

from parity.config import cases
from parity.runtime.backend import Backend
from parity.runtime.job import Job

RANKS = 3
PRELUDE = """import json, os, sys, time
from parity.runtime.serve import forks
forks()
rank = int(os.environ["RANK"]) if "RANK" in os.environ else \\
    json.loads(os.environ.get("TF_CONFIG", '{"task": {"index": 0}}'))["task"]["index"]
def say(status, message="", seconds=0.0):
    print(json.dumps({"status": status, "message": message, "seconds": seconds}), flush=True)
def note(text):
    print(text, file=sys.stderr, flush=True)
"""
ANSWERS = """say("ready")
for line in sys.stdin:
    say("done", seconds=1.0 + rank)
"""
SLEEPS = """say("ready")
sys.stdin.readline()
time.sleep(600)
"""


class Stage(contextlib.ExitStack):
    """A folder with a stand-in interpreter, whose processes leave their rank and id there; its backends are closed."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def interpreter(self, code: str) -> str:
        path = self.folder / "python"
        noted = f"open({str(self.folder / 'pids')!r}, 'a').write(f'{{rank}} {{os.getpid()}}\\n')\n"
        path.write_text(f"#!{sys.executable}\n{PRELUDE}{noted}{code}")
        path.chmod(0o755)
        return str(path)

    def backend(self, code: str, patience: float = 120.0, name: str = "torch") -> Backend:
        made = Backend(name, self.interpreter(code), self.folder, patience=patience)
        made.start = patience
        self.callback(made.close)
        return made

    def started(self) -> list[tuple[int, int]]:
        """The rank and the process id of each process so far."""
        lines = (self.folder / "pids").read_text().splitlines() if (self.folder / "pids").exists() else []
        return [(int(rank), int(pid)) for rank, pid in map(str.split, lines)]

    def running(self) -> list[tuple[int, int]]:
        return [(rank, pid) for rank, pid in self.started() if Path(f"/proc/{pid}").exists()]


def job(folder: Path, name: str = "simple_block/ddp", devices: int = RANKS, **changes: Any) -> Job:
    return Job(case=cases.resolve(name, {"devices": devices}, changes), runs=["low"], folder=str(folder / "trace"))


def only_rank_1(code: str, others: str = SLEEPS) -> str:
    """What rank 1 does; the others wait for it, as in a collective."""
    indented = (re.sub("^", "    ", part, flags=re.MULTILINE) for part in (code, others))
    return "if rank == 1:\n{}\nelse:\n{}\n".format(*indented)
