"""The energy that the processors have taken, where the machine tells it (Linux's powercap, Intel's and AMD's RAPL)."""

from pathlib import Path

ZONES = Path("/sys/class/powercap")


def joules(zones: Path = ZONES) -> dict[str, float] | None:
    """Return what the counter of each processor stands at, in joules; None where it cannot be read.

    docs.kernel.org/power/powercap/powercap.html: energy_uj counts microjoules, in intel-rapl:N for a whole processor.
    """
    try:
        return {zone.name: int((zone / "energy_uj").read_text()) / 1e6 for zone in zones.glob("intel-rapl:?")} or None
    except OSError:  # only the superuser may read it on many machines
        return None


def taken(before: dict[str, float] | None, after: dict[str, float] | None) -> float | None:
    """Return the joules between two readings, or None where they are not known, or a counter has started anew."""
    if before is None or after is None or any(after[zone] < joules for zone, joules in before.items()):
        return None
    return sum(after.values()) - sum(before.values())
