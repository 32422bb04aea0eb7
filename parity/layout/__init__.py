"""Device layouts: their comparison, and the differences that the frameworks have by design."""
