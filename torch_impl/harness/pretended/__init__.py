"""What CUDA is on virtual devices: the parts of PyTorch that `pretend` replaces, each with a function `patches`."""
