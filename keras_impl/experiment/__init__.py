"""Experiments on the live modules of a user's model."""
