"""Variations of a pair's inputs: the same two models on inputs that nobody gave."""
