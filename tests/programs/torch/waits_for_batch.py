"""A step that takes its batch from a queue that nobody fills."""

import queue

from tests.programs.torch.usual import build as build

BATCHES = queue.SimpleQueue()


def step(model, inputs):
    model.optimizer.zero_grad()
    x = BATCHES.get()  # fault
    model(x).square().mean().backward()
    model.optimizer.step()


def step_right(model, inputs):
    BATCHES.put(inputs["x"].to("cuda:0"))
    step(model, inputs)
