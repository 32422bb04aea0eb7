"""Variations: the two models of a pair on inputs that nobody gave."""
