"""What a line of a port may have to do with a layer; apart from mutating.execution, which imports Keras."""

# Layers in whose own code the line stands, that it makes, called from it or next after it, and called before it.
RELATIONS = ("within", "makes", "calls", "before")
