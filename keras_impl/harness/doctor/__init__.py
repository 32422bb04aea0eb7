"""The doctor's observers: what a Keras program does while it is built and in a step, as parity.doctor.evidence."""
