"""The reference side: models, strategies, losses and optimizers in PyTorch, and the recorder that runs them."""
