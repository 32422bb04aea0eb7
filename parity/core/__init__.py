"""What all packages need: errors, array types, names, seeded random numbers, signals and streams."""
