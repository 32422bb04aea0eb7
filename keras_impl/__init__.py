"""The port: models, strategies, losses and optimizers in Keras on TensorFlow; the harness records them."""
