"""How far two computations are apart, judged by two precisions instead of a tolerance."""
