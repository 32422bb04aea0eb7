"""A print of the loss in every step, forgotten after debugging."""

from tests.programs.keras.usual import build as build
from tests.programs.keras.usual import train


def step(model, inputs):
    loss = train(model, inputs)  # wrong
    print("loss:", loss)  # wrong  # fault
    # right: train(model, inputs)
