"""The doctor: facts about a few steps of a program, gathered by a backend, and the findings that rules make of them.

Data flows from the flags to a backend's doctor folder, then as `evidence` to the `rules`, which make findings.
"""
