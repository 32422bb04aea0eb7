"""What a line of a port may have to do with a layer; apart from mutating.execution, which imports Keras."""

# Layers in whose own code the line stands, that it makes, that are called from it or next after it, and the last before.
RELATIONS = ("within", "makes", "calls", "before")
