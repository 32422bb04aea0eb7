"""Where parameters lived, compared in canonical form: logical devices by index."""

from parity.results import LayoutCheck
from parity.trace.manifest import Layout


def compare_layouts(names: tuple[str, str], reference: Layout, candidate: Layout) -> LayoutCheck:
    """Every parameter on the same logical devices, and as many replicas."""
    differences = []
    if reference.replicas != candidate.replicas:
        differences.append(f"replicas: {names[0]} {reference.replicas}, {names[1]} {candidate.replicas}")
    for name in sorted(reference.parameters.keys() | candidate.parameters.keys()):
        here, there = reference.parameters.get(name), candidate.parameters.get(name)
        if here != there:
            differences.append(f"{name}: {names[0]} on devices {here}, {names[1]} on {there}")
    return LayoutCheck(verdict="diverged" if differences else "match", differences=differences)
