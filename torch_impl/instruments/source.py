"""The user's line that is running, among PyTorch's files, and where in it the program is."""

import os

import torch

from parity.core.ownership import LIBRARY, MOVED, PASSED, Lines
from parity.doctor import rewrite

ABOVE = os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), "")  # the folder that the torch package is in
# Files of torch that merely pass a user's call on.
PASSING = (
    *(f"torch/{file}.py" for file in ("overrides", "_tensor", "functional")),
    "torch/nn/functional.py",
    "torch/utils/_contextlib.py",
)
MODULE = "torch/nn/modules/module.py"


def _of_torch(file: str) -> int:
    package = file.removeprefix(ABOVE)
    return PASSED if package.startswith(PASSING) else MOVED if package == MODULE else LIBRARY


def _text(file: str, number: int) -> str:
    return f"{file.removeprefix(os.path.join(os.getcwd(), ''))}:{number}"


_LINES = Lines(_of_torch, text=_text)
frame, frames, line, line_of = _LINES.frame, _LINES.frames, _LINES.line, _LINES.line_of
direct, within, nearest = _LINES.direct, _LINES.within, _LINES.nearest
standing_for, is_standing = _LINES.standing_for, _LINES.is_standing


def spot(owner: object = None) -> rewrite.Spot | None:
    """Return where within the user's line the program is."""
    running = frame(owner)
    return rewrite.spot(running) if running else None
