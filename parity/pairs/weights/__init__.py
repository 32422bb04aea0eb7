"""The weight mapping of a pair: which weights of Keras hold which of torch's.

Each file uses only those above it: `names` compares names, `units` groups a side's weights by module, `layouts` knows
how a kind of layer lays them out, `links` says whether units of both sides can hold the same weights, and how these
move, `align` puts both sides into one order, `equal_shapes` tells apart what could be exchanged, and `propose` makes
the mapping of all this.
"""
