"""Faults: mistakes planted on purpose, by name, so that the self-test can demand that they are found."""
