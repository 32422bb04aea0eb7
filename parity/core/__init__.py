"""What all packages need: errors, array types, seeded random numbers, a command's process, and the user's program."""
