"""The PyTorch half of a user's own pair of models: built, surveyed, and recorded like a built-in case."""
