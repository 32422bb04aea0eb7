"""Runs a case and records it; the teaching code knows nothing of this folder."""
