"""The weight mapping of a pair: which weights of Keras hold which of torch's."""
