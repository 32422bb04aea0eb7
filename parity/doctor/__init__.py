"""The doctor: facts about one step of a program, gathered by a backend, and the findings that rules make of them.

Data passes through as `inputs` (the flags) -> a backend's harness/doctor.py -> `evidence` -> `rules` -> `finding`.
"""
