"""What explains the differences of a pair: its causes, found in the traces or by calling the living models."""
