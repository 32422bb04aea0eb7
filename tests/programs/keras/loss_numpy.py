"""The loss of every step goes to a list as a NumPy number."""

from tests.programs.keras.usual import build as build
from tests.programs.keras.usual import train

HISTORY = []


def step(model, inputs):
    HISTORY.append(train(model, inputs).numpy())  # wrong  # fault
    # right: HISTORY.append(train(model, inputs))
