"""The candidate side: models, strategies, losses and optimizers in Keras, and the recorder that runs them."""
