"""What the doctor sees of a user's Keras program, as parity.doctor.evidence."""
