"""The matching of activations: which tensors of Keras's layers correspond to which of torch's modules."""
