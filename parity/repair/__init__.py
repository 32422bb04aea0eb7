"""Proof by repair: find the edit of the port's source that removes a cause, and run the pair again with it."""
