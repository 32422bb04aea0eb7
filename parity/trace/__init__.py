"""Traces on disk: what a backend did, as safetensors files and one manifest; nothing is pickled."""
