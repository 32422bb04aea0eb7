"""The self-test: planted faults, where each must be found and under which cause, and what was found."""
