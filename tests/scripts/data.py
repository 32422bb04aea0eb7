"""What both scripts import from beside them."""

CLASSES, SIZE = 10, 6
