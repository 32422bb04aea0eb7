"""The self-test: planted faults, where each must be found and as what, and what was found."""
