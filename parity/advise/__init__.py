"""Predict what each distribution strategy costs, from a case or a recorded training on a single device.

`model` and `describe` say what a training consists of; `strategies` and `costs` have the formulas of each strategy;
`devices` the machines; `advice` puts them together.
"""
