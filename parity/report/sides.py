"""What each side does, of a cause."""

from parity.results import Cause


def sides_of(cause: Cause) -> dict[str, str]:
    """Return what each side does, by its name; nothing if nothing is known of either.

    A side that has None, as where a limit is off or a default is taken, is told beside the other's value.
    """
    values = cause.sides
    return {side: str(value) for side, value in values.items()} if any(v is not None for v in values.values()) else {}


def in_words(cause: Cause) -> str:
    """Return what each side does in words: "torch 1e-05, keras 1e-06"."""
    return ", ".join(f"{side} {value}" for side, value in sides_of(cause).items())
