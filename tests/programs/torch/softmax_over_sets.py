"""Softmaxes over the first axis that are meant: over a set, over unbatched scores, over classes that stand first."""

import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.attention, self.out = nn.Linear(16, 16), nn.Linear(16, 1), nn.Linear(16, 4)

    def forward(self, bag):
        hidden = self.body(bag).tanh()
        weights = torch.softmax(self.attention(hidden), dim=0)
        return self.out((weights * hidden).sum(0))


def build_right():
    model = Net().to("cuda")
    model.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return model


def step_right(model, inputs):
    x, y = inputs["x"].to("cuda"), inputs["y"].to("cuda")
    chances = functional.log_softmax(model(x), dim=0)
    loss = functional.nll_loss(chances[None], y[:1])
    scores = model.out(model.body(x)).t().contiguous()
    loss = loss + functional.nll_loss(scores.log_softmax(0).t(), y)
    features = functional.normalize(model.body(x), dim=1)
    alike = features @ features.t() / 0.1
    pairs = torch.arange(len(x), device="cuda")
    loss = loss + functional.cross_entropy(alike, pairs) - alike.log_softmax(dim=0).diagonal().mean()
    loss = loss + functional.nll_loss(functional.log_softmax(alike, 0), pairs)
    model.optimizer.zero_grad()
    loss.backward()
    model.optimizer.step()
