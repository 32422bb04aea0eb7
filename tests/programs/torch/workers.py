"""A loader with a worker process of its own, and validation that gives the mode back."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def build():
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4)).cuda()
    model.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return model


def step(model, inputs):
    for x, y in DataLoader(TensorDataset(inputs["x"], inputs["y"]), batch_size=4, num_workers=1):
        model.optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
        model.optimizer.step()
    model.eval()
    with torch.no_grad():
        model(inputs["x"].cuda())
    model.train()
