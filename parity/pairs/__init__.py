"""Comparison of a user's own two models: the pair's file, the weight mapping, the matching of activations."""
