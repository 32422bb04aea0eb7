"""Real data sets that need no download, cut into the same batches on both sides."""
