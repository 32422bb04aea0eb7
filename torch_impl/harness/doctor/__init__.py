"""What a user's program does while it is built and in a step: the facts of parity.doctor.evidence."""
