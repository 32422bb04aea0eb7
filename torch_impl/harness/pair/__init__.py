"""PyTorch's half of a user's own pair: their model built, surveyed, and recorded like any other."""
