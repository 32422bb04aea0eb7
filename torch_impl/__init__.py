"""The reference side: models, strategies, losses and optimizers in PyTorch, and the harness that records them."""
