"""Gradients are clipped when the update has used them."""

from torch import nn

from tests.programs.torch.usual import build as build


def step(model, inputs):
    # right: """In parts, each of them clipped."""
    model.optimizer.zero_grad()
    loss = model(inputs["x"].to("cuda:0")).square().mean()  # wrong
    loss.backward()  # wrong
    # right: for part in inputs["x"].to("cuda:0").chunk(2):
    # right:     (model(part).square().mean() / 2).backward()
    # right:     nn.utils.clip_grad_value_(model.parameters(), 0.5)
    model.optimizer.step()
    nn.utils.clip_grad_value_(model.parameters(), 0.5)  # wrong  # fault
