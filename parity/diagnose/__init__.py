"""Diagnosis: the first module or tensor at which two runs part, and the setting or constant that explains why.

Each topic has a file: it reads what it needs from the traces of both sides as its own observation (`observe`), and
holds the formulas that the observation is held against (`Formula`). The topics are, in the order of a step:

- initial_parameters.py, samples.py, inputs.py: what a step starts from;
- forward.py: the modules, with one formula for each kind of layer in layers/, and what lies between them:
  concatenations, and what wiring.py finds;
- losses.py, reductions.py, gradients.py: the loss and the gradients;
- optimizers.py (with updates.py and optimizer_steps.py): the updates;
- entries.py: the layout; layers/rounding.py: what only the low run does.

They share topic.py (access to the traces, and what a topic asks), formula.py (a recorded value as evidence, and what a
formula is), explain.py (the search for settings) and solve.py (hidden constants). diagnosis.py lists the topics and
asks them in order, and entries.py writes down what they answer.
"""
