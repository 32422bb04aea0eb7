"""parity COMMAND: all commands behind one name; `parity compare` is `python -m parity.compare`."""

import functools
import importlib
import sys
from collections.abc import Sequence
from typing import NoReturn

from parity.core import process
from parity.core.errors import UsageError, nearest

PACKAGES = ("advise", "bench", "doctor", "selftest")  # those that have a room to themselves; the others are modules
COMMANDS = {
    "compare": "are the PyTorch and the Keras side the same computation?",
    "record": "run one side alone and keep its traces, to be compared later",
    "certify": "keep one side in a file, by which a port is judged on its own",
    "bisect": "which version of a package changed what a model computes?",
    "bench": "how long does a step take in each framework, and what is fastest?",
    "advise": "which strategy fits on which devices, and what would it give?",
    "doctor": "why does a training fail, crawl or hang on the GPU?",
    "selftest": "are planted faults caught, placed and named?",
}


def main() -> NoReturn:
    """Run the command that the first argument names, and exit with its status."""
    name = sys.argv[1] if sys.argv[1:] else ""
    program = f"parity {name}" if name in COMMANDS else "parity"
    process.end_at_once(program)  # the imports below take long
    from parity import cli

    if name not in COMMANDS:
        cli.end(program, _help)
    command = importlib.import_module(f"parity.{name}.__main__" if name in PACKAGES else f"parity.{name}").main
    del sys.argv[1]
    cli.end(program, functools.partial(command, program=program))


def _help(argv: Sequence[str]) -> int:
    """List the commands; returns the exit status. Raises UsageError unless that was asked for."""
    if argv and argv[0] in ("-h", "--help"):
        print("usage: parity COMMAND [FLAGS]\n")
        print("\n".join(f"  {name:<10}{question}" for name, question in COMMANDS.items()))
        print("\n`parity COMMAND --help` lists the flags of a command.")
        return 0
    received = f"received {argv[0]!r}{nearest(argv[0], COMMANDS)}" if argv else "received no command"
    raise UsageError(f"{received}, expected one of {', '.join(COMMANDS)}; --help says what they do")


if __name__ == "__main__":
    main()
