"""Real samples that need no download, cut into the same batches on both sides."""
