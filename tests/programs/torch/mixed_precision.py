"""A loop as the tutorials have it: autocast, a scaler, clipped gradients, a schedule, the loss kept on the GPU."""

import torch
from torch import nn
from torch.nn import functional

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(100, 32)
        self.encoder = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        self.norm = nn.LayerNorm(32)
        self.out = nn.Linear(32, 5)
        self.register_buffer("positions", torch.randn(12, 32))

    def forward(self, ids):
        hidden = self.encoder(self.table(ids) + self.positions)
        return self.out(self.norm(hidden.mean(dim=1)))


class Training:
    def __init__(self, model):
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=10)
        self.scaler = torch.amp.GradScaler(device.type)
        self.total = torch.zeros((), device=device)


def build_right():
    model = Net().to(device)
    model.training_state = Training(model)
    return model


def step_right(model, inputs):
    state = model.training_state
    model.train()
    ids, labels = (inputs[name].to(device, non_blocking=True) for name in ("ids", "labels"))
    state.optimizer.zero_grad(set_to_none=True)
    with torch.autocast(device_type=device.type, dtype=torch.float16):
        loss = functional.cross_entropy(model(ids), labels)
    state.scaler.scale(loss).backward()
    state.scaler.unscale_(state.optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    state.scaler.step(state.optimizer)
    state.scaler.update()
    state.schedule.step()
    state.total += loss.detach()
