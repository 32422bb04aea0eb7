"""Experiments on the live modules of a pair."""
