"""Updates of which a part is missing, comes at a wrong time, or has a wrong size."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim import lr_scheduler

from tests.programs.torch.usual import build as build
from tests.programs.torch.usual import mlp, on_gpu
from tests.programs.torch.usual import step as step


def accumulated(model, inputs):
    """Gradients of four parts of the batch are added up; nobody divides by four."""
    model.optimizer.zero_grad()
    for part in inputs["x"].to("cuda:0").chunk(4):
        loss = model(part).square().mean()  # wrong
        # right: loss = model(part).square().mean() / 4
        loss.backward()  # fault: accumulated
    model.optimizer.step()


def build_gradients_kept():
    return on_gpu(nn.Linear(16, 4), rate=0.01)


def gradients_kept(model, inputs):
    """A loop that never clears its gradients: each step adds to those of all steps before."""
    # right: model.optimizer.zero_grad()
    loss = model(inputs["x"].to("cuda:0")).square().mean()
    loss.backward()  # fault: gradients_kept
    model.optimizer.step()


def build_never_stepped():
    return on_gpu(mlp(), torch.optim.Adam, 1e-3)


def never_stepped(model, inputs):
    """A loop without optimizer.step(): gradients are computed and thrown away."""
    model.optimizer.zero_grad()
    loss = cross_entropy(model(inputs["x"].to("cuda:0")), inputs["y"].to("cuda:0"))
    loss.backward()  # fault: never_stepped
    # right: model.optimizer.step()


def clipped_early(model, inputs):
    """Gradients are clipped before the backward pass makes them."""
    model.optimizer.zero_grad()
    loss = model(inputs["x"].to("cuda:0")).square().mean()
    # right: loss.backward()
    clip_grad_norm_(model.parameters(), 1.0)  # fault: clipped_early
    loss.backward()  # wrong
    model.optimizer.step()


def clipped_late(model, inputs):
    """Gradients are clipped when the update has used them; those of each part of a batch may well be."""
    model.optimizer.zero_grad()
    loss = model(inputs["x"].to("cuda:0")).square().mean()  # wrong
    loss.backward()  # wrong
    # right: for part in inputs["x"].to("cuda:0").chunk(2):
    # right:     (model(part).square().mean() / 2).backward()
    # right:     clip_grad_value_(model.parameters(), 0.5)
    model.optimizer.step()
    clip_grad_value_(model.parameters(), 0.5)  # wrong  # fault: clipped_late


def with_scaler():
    model = on_gpu(mlp())
    model.scaler = torch.amp.GradScaler("cuda")
    return model


def scaled_backward(model, inputs, loss_of):
    model.optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.float16):
        outputs = model(inputs["x"].to("cuda"))
    model.scaler.scale(loss_of(outputs.float(), inputs["y"].to("cuda"))).backward()


build_clipped_scaled = with_scaler


def clipped_scaled(model, inputs):
    """Gradients are clipped with the GradScaler's scale still on them."""
    scaled_backward(model, inputs, cross_entropy)
    # right: model.scaler.unscale_(model.optimizer)
    clip_grad_norm_(model.parameters(), 1.0)  # fault: clipped_scaled
    model.scaler.step(model.optimizer)
    model.scaler.update()


build_unscaled_late = with_scaler


def unscaled_late(model, inputs):
    """Gradients are unscaled when they have been clipped."""
    scaled_backward(model, inputs, mse_loss)
    # right: model.scaler.unscale_(model.optimizer)
    clip_grad_value_(model.parameters(), 0.5)  # fault: unscaled_late
    model.scaler.unscale_(model.optimizer)  # wrong
    model.scaler.step(model.optimizer)
    model.scaler.update()


def build_half_unscaled():
    model = on_gpu(mlp(), torch.optim.Adam, 1e-3)
    model.scaler = torch.amp.GradScaler("cuda")
    return model


def half_unscaled(model, inputs):
    """float16 under autocast, and no loss scaling: small gradients become zero."""
    model.optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):  # fault: half_unscaled
        loss = mse_loss(model(inputs["x"].to("cuda:0")), inputs["y"].to("cuda:0"))
    loss.backward()  # wrong
    model.optimizer.step()  # wrong
    # right: model.scaler.scale(loss).backward()
    # right: model.scaler.step(model.optimizer)
    # right: model.scaler.update()


def build_cleared_early():
    return on_gpu(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)), torch.optim.AdamW, 1e-3)


def cleared_early(model, inputs):
    """The gradients are cleared between the backward pass and the update."""
    loss = cross_entropy(model(inputs["x"].to("cuda")), inputs["y"].to("cuda"))
    loss.backward()
    model.optimizer.zero_grad()  # wrong  # fault: cleared_early
    clip_grad_norm_(model.parameters(), 1.0)
    model.optimizer.step()
    # right: model.optimizer.zero_grad()


def build_zeroed_early():
    model = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4)).to("cuda:0")
    model.sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model


def zeroed_early(model, inputs):
    """Gradients of several parts are set to zero before the update, by the model."""
    x, y = (inputs[name].to("cuda:0").chunk(2) for name in ("x", "y"))
    for part, target in zip(x, y, strict=True):
        (mse_loss(model(part), target) / 2).backward()
    # right: model.sgd.step()
    model.zero_grad(set_to_none=False)  # fault: zeroed_early
    model.sgd.step()  # wrong


def build_scheduled_first():
    model = on_gpu(nn.Linear(16, 4))
    warm = lr_scheduler.LinearLR(model.optimizer, 0.5, total_iters=2)
    cool = lr_scheduler.CosineAnnealingLR(model.optimizer, 100)
    model.scheduler = lr_scheduler.SequentialLR(model.optimizer, [warm, cool], [2])
    return model


def scheduled_first(model, inputs):
    """The scheduler steps before the optimizer: the first learning rate is never used."""
    model.optimizer.zero_grad()
    loss = model(inputs["x"].to("cuda:0")).square().mean()
    loss.backward()
    # right: model.optimizer.step()
    model.scheduler.step()  # fault: scheduled_first
    model.optimizer.step()  # wrong


def build_never_warm():
    model = mlp().to("cuda")
    model.optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model.schedule = lr_scheduler.LambdaLR(model.optimizer, lambda number: min(number / 4, 1.0))
    return model


def never_warm(model, inputs):
    """A warm-up from a learning rate of 0, whose scheduler is never stepped."""
    model.optimizer.zero_grad()
    cross_entropy(model(inputs["x"].to("cuda")), inputs["y"].to("cuda")).backward()
    model.optimizer.step()  # fault: never_warm
    # right: model.schedule.step()


def build_rate_of_zero():
    """An optimizer that is made with a learning rate of 0."""
    model = nn.Linear(16, 4).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.0)  # wrong  # fault: rate_of_zero
    # right: model.optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return model


def build_absurd_rate():
    """A learning rate of 1e18: one update replaces the parameters. Those near 0 may grow much by one of 0.1."""
    model = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4)).to("cuda:0")
    model.optimizer = torch.optim.Adam(model.parameters(), lr=1e18)  # wrong  # fault: absurd_rate
    # right: for parameter in model.parameters():
    # right:     nn.init.normal_(parameter, std=1e-4)
    # right: model.optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    return model
