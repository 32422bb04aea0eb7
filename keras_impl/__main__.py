"""Command line of the Keras side: `python -m keras_impl` records cases.

parity.runtime starts it and sends it jobs; a user can start it by hand, as one rank of a distributed run (see --help).
"""

import sys

from parity import standalone


def imports() -> None:
    """Import what all processes share: Keras and TensorFlow."""
    # Keras imports scikit-learn where it is installed, only for keras.wrappers; that is a quarter of the start-up time.
    sys.modules["sklearn"] = None
    import keras  # noqa: F401

    del sys.modules["sklearn"]  # the user's program may still import it


if __name__ == "__main__":
    standalone.start("keras_impl", "keras", imports)
