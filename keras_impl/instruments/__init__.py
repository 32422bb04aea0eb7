"""What Keras needs of its own and PyTorch cannot have alike: op callbacks, graph partitions, AutoGraph's sources.

The files here are the only ones without a twin in torch_impl/. They import nothing of this package's other folders.
"""
