"""The candidate side: models, strategies, losses and optimizers in Keras, and the harness that records them."""
