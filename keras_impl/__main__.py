"""python -m keras_impl: a process that records cases, fed by parity.runtime."""

import functools
import gc
import sys

from parity.runtime import drive, serve


def load() -> serve.Run:
    """Import the framework and its harness."""
    from keras_impl.harness import run

    # Keras collects garbage between runs: what the imports made need not be looked through each time.
    gc.collect()
    gc.freeze()
    return functools.partial(drive.record, side=run)


if __name__ == "__main__":
    sys.exit(serve.serve(load))
