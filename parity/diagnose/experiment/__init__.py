"""Experiments on the live modules of a pair that does not match."""
