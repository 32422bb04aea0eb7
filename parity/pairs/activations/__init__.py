"""Which tensors that Keras's layers return are which of torch's, by weights, values and order."""
