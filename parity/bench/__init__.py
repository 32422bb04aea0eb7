"""Time the same training in both frameworks, in each of the ways in which it can be carried out."""
