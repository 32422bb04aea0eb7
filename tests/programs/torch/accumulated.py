"""Gradients of four parts of the batch are added up; nobody divides by four."""

from tests.programs.torch.usual import build as build

PARTS = 4


def step(model, inputs):
    model.optimizer.zero_grad()
    for part in inputs["x"].to("cuda:0").chunk(PARTS):
        loss = model(part).square().mean()  # wrong
        # right: loss = model(part).square().mean() / PARTS
        loss.backward()  # fault
    model.optimizer.step()
