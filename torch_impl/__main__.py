"""python -m torch_impl: a process that records cases, fed by parity.runtime."""

import functools
import sys

from parity.runtime import drive, serve


def load() -> serve.Run:
    """Import the framework and its harness."""
    from torch_impl.harness import run

    return functools.partial(drive.record, side=run)


if __name__ == "__main__":
    sys.exit(serve.serve(load))
