"""The weight mapping of a pair: which weights of Keras hold which of torch's.

Each file uses only those above it. How weights move: `patterns` are those of einops, `transfer` applies an entry of the
mapping to values. What may belong together: `names` compares names, `units` groups a side's weights by module,
`layouts` knows how a kind of layer lays them out, `links` says whether units of both sides can hold the same weights,
and how these move, `align` puts both sides into one order, `equal_shapes` tells apart what could be exchanged, `rules`
are the user's, `propose` makes the mapping of all this, and of what has no counterpart then, and `show` formats it.
What remains open is decided by running: `runs` runs Keras's model, compares what both return, and says what was taken
for granted, `resolve` tries the choices of a proposal, and `readings` whole proposals.
"""
