"""Where two computations part, and why: who is guilty, which convention or constant explains it."""
