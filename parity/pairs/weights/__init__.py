"""Which weights of Keras hold which of torch's, by rules, kinds, shapes, order and names."""
