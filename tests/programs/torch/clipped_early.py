"""Gradients are clipped before the backward pass makes them."""

from torch.nn.utils import clip_grad_norm_

from tests.programs.torch.usual import build as build


def step(model, inputs):
    model.optimizer.zero_grad()
    loss = model(inputs["x"].to("cuda:0")).square().mean()
    # right: loss.backward()
    clip_grad_norm_(model.parameters(), 1.0)  # fault
    loss.backward()  # wrong
    model.optimizer.step()
