"""The harness: runs a case and records it; models, strategies, losses and optimizers do not know of it."""
