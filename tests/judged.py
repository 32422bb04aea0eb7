"""What the tests demand of a case that is to pass."""

from parity.results import CaseResult


def passes_strict(result: CaseResult) -> bool:
    """A match, and nothing that --strict would fail."""
    return result.verdict == "match" and not result.findings
