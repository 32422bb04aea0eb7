"""What looks like a fault and is none: scaled and clipped gradients, accumulation over calls, soft targets, mixing."""

import torch
from torch import nn
from torch.nn import functional


def build_right():
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model.scaler = torch.amp.GradScaler("cuda")
    model.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(model.optimizer)
    state = {"calls": 0, "average": torch.zeros((), device="cuda:0"), "last": []}
    model.state = lambda: state
    return model


def loss_of(model, x, y):
    """Soft targets of a teacher, smoothed labels, a likelihood of normalised scores, mixed samples."""
    scores = model(x)
    with torch.no_grad():
        teacher = model(x).softmax(1)
    order = torch.randperm(len(x))
    mixed = model(torch.lerp(x, x[order], 0.3))
    losses = [
        functional.kl_div(scores.log_softmax(1), teacher, reduction="batchmean"),
        functional.cross_entropy(scores, teacher, label_smoothing=0.1),
        functional.nll_loss(scores.softmax(1).clamp(min=1e-6).log(), y),
        0.7 * functional.cross_entropy(mixed, y) + 0.3 * functional.cross_entropy(mixed, y[order]),
        functional.binary_cross_entropy(scores.sigmoid(), functional.one_hot(y, 4).float()),
    ]
    return sum(losses)


def step_right(model, inputs):
    state = model.state()
    x, y = inputs["x"].to("cuda:0"), inputs["y"].to("cuda:0")
    with torch.autocast("cuda", torch.bfloat16):
        scores = model(x)
    loss = (functional.cross_entropy(scores.float(), y) + loss_of(model, x, y)) / 3
    model.scaler.scale(loss).backward()
    state["calls"] += 1
    state["average"] = 0.9 * state["average"] + 0.1 * loss.detach()
    state["last"] = [loss]
    if state["calls"] % 3 == 0:
        model.scaler.unscale_(model.optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        model.scaler.step(model.optimizer)
        model.scaler.update()
        model.optimizer.zero_grad()
        model.scheduler.step(state["average"].detach().to("cpu", non_blocking=True) if state["calls"] > 9 else 0.0)
