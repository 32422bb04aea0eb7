"""float16 under autocast, and no loss scaling: small gradients become zero."""

import torch
from torch import nn
from torch.nn import functional


def build():
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to("cuda:0")
    model.optimizer = torch.optim.Adam(model.parameters())
    model.scaler = torch.amp.GradScaler("cuda")
    return model


def forward(model, inputs):
    model.optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):  # fault
        out = model(inputs["x"].to("cuda:0"))
        return functional.mse_loss(out, inputs["y"].to("cuda:0"))


def step(model, inputs):
    forward(model, inputs).backward()  # wrong
    model.optimizer.step()  # wrong
    # right: model.scaler.scale(forward(model, inputs)).backward()
    # right: model.scaler.step(model.optimizer)
    # right: model.scaler.update()
