"""Faults planted at random in ports: how a source is mutated, what the truth of a mutant is, and what is said of it."""
