"""The reference: models, strategies, losses and optimizers in PyTorch; the harness records them."""
