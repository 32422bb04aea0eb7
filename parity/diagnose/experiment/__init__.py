"""Experiments on live modules: which change of a setting makes one side compute what the other does."""
