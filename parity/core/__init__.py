"""What all rooms need: errors, arrays, names, seeded random numbers, signals and streams."""
