"""Copies to the host without waiting, that are read one step later or when an event says so."""

import torch
from torch import nn
from torch.nn import functional


def build_right():
    model = nn.Linear(16, 4).to("cuda")
    model.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.host = torch.empty(8, 4).pin_memory()
    model.last, model.seen = None, []
    return model


def step_right(model, inputs):
    logits = model(inputs["x"].to("cuda", non_blocking=True))
    loss = functional.cross_entropy(logits, inputs["y"].to("cuda"))
    model.optimizer.zero_grad()
    loss.backward()
    model.optimizer.step()
    if model.last is not None:
        model.seen.append(float(model.last))
    model.last = loss.detach().to("cpu", non_blocking=True)
    model.host.copy_(logits.detach(), non_blocking=True)
    torch.cuda.current_stream().synchronize()
    model.seen.append(model.host.argmax(1).tolist())
