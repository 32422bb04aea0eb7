"""Output of a report: as tables and text on a terminal, or as JSON."""
