"""python -m torch_impl: records cases, fed by parity.runtime, or by hand as one rank (--help)."""

from parity import standalone
from parity.pairs.vary.record import Open
from parity.runtime import drive


def load() -> drive.Side:
    """Import the framework and its harness."""
    from torch_impl.harness import run

    return run


def doctor() -> standalone.Examine:
    """What examines a program."""
    from torch_impl.harness.doctor.examine import examine

    return examine


def surveyor() -> standalone.Survey:
    """What tells of a pair's half."""
    from torch_impl.harness.pair.survey import survey

    return survey


def opener() -> Open:
    """What builds a pair's half to be called on variations of its inputs."""
    from torch_impl.harness.pair.vary import opened

    return opened


if __name__ == "__main__":
    standalone.start("torch_impl", "torch", load, doctor, surveyor, opener)
