"""Command line of the PyTorch side: `python -m torch_impl` records cases.

parity.runtime starts it and sends it jobs; a user can start it by hand, as one rank of a distributed run (see --help).
The functions below import late, so that --help and errors in the flags need no framework.
"""

from parity import standalone
from parity.diagnose.experiment import live
from parity.pairs.vary.record import Open
from parity.runtime import drive
from parity.runtime.serve import Bench


def load() -> drive.Side:
    """Import PyTorch and the recorder, and return the module that runs jobs."""
    from torch_impl.record import run

    return run


def doctor() -> standalone.Examine:
    """Return the function that examines a user's training script."""
    from torch_impl.doctor.examine import examine

    return examine


def surveyor() -> standalone.Survey:
    """Return the function that describes this side's half of a pair of models."""
    from torch_impl.record.pair.survey import survey

    return survey


def opener() -> Open:
    """Return the function that builds this side's half of a pair, to be called on variations of its inputs."""
    from torch_impl.record.pair.vary import opened

    return opened


def experimenter() -> live.Open:
    """Return the function that builds this side's half of a pair, of which one module is called with other settings."""
    from torch_impl.experiment.live import opened

    return opened


def bencher() -> Bench:
    """Return the function that trains a model in bursts of steps, to be timed."""
    from torch_impl.bench import bench

    return bench


if __name__ == "__main__":
    standalone.start("torch_impl", "torch", load, doctor, surveyor, opener, experimenter, bencher)
