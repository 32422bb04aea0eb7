"""Command line of the PyTorch side: `python -m torch_impl` records cases.

parity.runtime starts it and sends it jobs; a user can start it by hand, as one rank of a distributed run (see --help).
"""

from parity import standalone


def imports() -> None:
    """Import what all processes share: PyTorch, and what an optimizer imports at its first step, which takes longer."""
    import torch._dynamo  # noqa: F401


if __name__ == "__main__":
    standalone.start("torch_impl", "torch", imports)
