"""What both scripts import from beside them."""

import numpy as np

CLASSES, SIZE = 10, 6
RATINGS = np.random.default_rng(0).integers(0, 20, (64, 2))  # of a user and an item
