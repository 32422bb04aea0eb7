"""Traces on disk: the tensors that a backend recorded, as safetensors files and one manifest; nothing is pickled."""
