"""Gradients are unscaled when they have been clipped."""

import torch
from torch import nn
from torch.nn import functional

from tests.programs.torch.clipped_scaled import build as build


def backward(model, inputs):
    model.optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.float16):
        outputs = model(inputs["x"].to("cuda"))
    loss = functional.mse_loss(outputs.float(), inputs["y"].to("cuda"))
    model.scaler.scale(loss).backward()


def step(model, inputs):
    backward(model, inputs)
    # right: model.scaler.unscale_(model.optimizer)
    nn.utils.clip_grad_value_(model.parameters(), 0.5)  # fault
    model.scaler.unscale_(model.optimizer)  # wrong
    model.scaler.step(model.optimizer)
    model.scaler.update()
