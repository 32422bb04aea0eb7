"""What PyTorch needs of its own and Keras cannot have alike: hooks, dispatch modes, virtual devices, process groups.

The files here are the only ones without a twin in keras_impl/. They import nothing of this package's other folders.
"""
