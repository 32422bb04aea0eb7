"""python -m keras_impl: records cases, fed by parity.runtime, or by hand as one rank (--help)."""

import gc
import sys

from parity import standalone
from parity.pairs.vary.record import Open
from parity.runtime import drive


def load() -> drive.Side:
    """Import the framework and its harness."""
    # Keras imports scikit-learn, if there, for keras.wrappers alone, which take a quarter of the time to start.
    sys.modules["sklearn"] = None
    from keras_impl.harness import run

    del sys.modules["sklearn"]  # a program may import it
    # Keras collects garbage between runs: what the imports made need not be looked through each time.
    gc.collect()
    gc.freeze()
    return run


def doctor() -> standalone.Examine:
    """What examines a program."""
    from keras_impl.harness.doctor.examine import examine

    return examine


def surveyor() -> standalone.Survey:
    """What tells of a pair's half."""
    from keras_impl.harness.pair.survey import survey

    return survey


def opener() -> Open:
    """What builds a pair's half to be called on variations of its inputs."""
    from keras_impl.harness.pair.vary import opened

    return opened


if __name__ == "__main__":
    standalone.start("keras_impl", "keras", load, doctor, surveyor, opener)
