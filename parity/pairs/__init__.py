"""A user's own two models: their file, the mapping of weights, the matching of activations."""
