"""The loss is taken to the CPU in every step, which waits for the GPU."""

from tests.programs.keras.usual import build as build
from tests.programs.keras.usual import train

HISTORY = []


def step(model, inputs):
    loss = train(model, inputs)  # wrong
    HISTORY.append(loss.cpu())  # wrong  # fault
    # right: HISTORY.append(train(model, inputs))
