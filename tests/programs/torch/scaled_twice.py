"""A scaler for a part of the training, one that is switched off, and gradients clipped in their right size."""

import torch
from torch import nn
from torch.nn import functional


def build_right():
    model = nn.ModuleDict({"body": nn.Linear(16, 32), "head": nn.Linear(32, 4)}).to("cuda")
    model.for_body = torch.optim.AdamW(model["body"].parameters(), lr=1e-3)
    model.for_head = torch.optim.AdamW(model["head"].parameters(), lr=1e-3)
    model.scaler, model.off = torch.amp.GradScaler("cuda"), torch.amp.GradScaler("cuda", enabled=False)
    return model


def step_right(model, inputs):
    x, y = inputs["x"].to("cuda"), inputs["y"].to("cuda")
    model.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = functional.cross_entropy(model["head"](model["body"](x).relu()), y)
    model.scaler.scale(loss).backward()
    for optimizer in (model.for_body, model.for_head):
        model.scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in (model.for_body, model.for_head):
        model.scaler.step(optimizer)
    model.scaler.update()
    model.zero_grad()
    model.off.scale(functional.cross_entropy(model["head"](model["body"](x).detach().relu()), y)).backward()
    nn.utils.clip_grad_norm_(model["head"].parameters(), 1.0)
    model.off.step(model.for_head)
    model.off.update()
