"""The parts of PyTorch that `pretend` replaces so that virtual devices pass for GPUs; each has a function `patches`."""
