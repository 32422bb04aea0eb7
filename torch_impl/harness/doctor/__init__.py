"""The doctor's observers: what a PyTorch program does while it is built and in a step, as parity.doctor.evidence."""
