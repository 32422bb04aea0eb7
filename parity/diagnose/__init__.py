"""Diagnosis: the first module or tensor at which two runs part, and the setting or constant that explains why.

Each topic has a file: it reads what it needs from the traces of both sides as its own observation (`observe`), and
holds the formulas that the observation is held against (`Formula`). The topics are, in the order of a step:

- initial_parameters.py (and initialisers.py), samples.py, inputs.py: what a step starts from;
- forward.py: the modules, with one formula for each kind of layer in layers/, and wiring.py and concatenation.py for
  what lies between them;
- losses.py, reductions.py, gradients.py: the loss and the gradients;
- optimizers.py (with updates.py and optimizer_steps.py): the updates;
- placement.py: the layout; layers/rounding.py: what only the low run does.

They share sides.py (access to the traces), observation.py (a recorded value as evidence), formula.py and explain.py
(the search for settings), solve.py (hidden constants) and question.py (what a topic asks). topics.py lists the
topics, diagnosis.py asks them in order, and entries.py writes down what they answer.
"""
