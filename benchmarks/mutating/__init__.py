"""Faults planted at random in ports: how a source is mutated, what the truth of a mutant is, and what is said of it."""

# What a line of a port may have to do with a layer: those in whose own code the line stands, that it makes, called from
# it or next after it, and called before it.
RELATIONS = ("within", "makes", "calls", "before")
