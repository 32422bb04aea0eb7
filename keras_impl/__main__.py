"""Command line of the Keras side: `python -m keras_impl` records cases.

parity.runtime starts it and sends it jobs; a user can start it by hand, as one rank of a distributed run (see --help).
The functions below import late, so that --help and errors in the flags need no framework.
"""

import gc
import sys

from parity import standalone
from parity.diagnose.experiment import live
from parity.pairs.vary.record import Open
from parity.runtime import drive
from parity.runtime.serve import Bench


def load() -> drive.Side:
    """Import Keras and the recorder, and return the module that runs jobs."""
    # Keras imports scikit-learn where it is installed, only for keras.wrappers; that is a quarter of the start-up time.
    sys.modules["sklearn"] = None
    from keras_impl.record import run

    del sys.modules["sklearn"]  # the user's program may still import it
    # Keras collects garbage between runs. Freezing keeps the collector from walking the imported modules each time.
    gc.collect()
    gc.freeze()
    return run


def doctor() -> standalone.Examine:
    """Return the function that examines a user's training script."""
    from keras_impl.doctor.examine import examine

    return examine


def surveyor() -> standalone.Survey:
    """Return the function that describes this side's half of a pair of models."""
    from keras_impl.record.pair.survey import survey

    return survey


def opener() -> Open:
    """Return the function that builds this side's half of a pair, to be called on variations of its inputs."""
    from keras_impl.record.pair.vary import opened

    return opened


def experimenter() -> live.Open:
    """Return the function that builds this side's half of a pair, of which one module is called with other settings."""
    from keras_impl.experiment.live import opened

    return opened


def bencher() -> Bench:
    """Return the function that trains a model in bursts of steps, to be timed."""
    from keras_impl.bench import bench

    return bench


if __name__ == "__main__":
    standalone.start("keras_impl", "keras", load, doctor, surveyor, opener, experimenter, bencher)
