"""Captures a part of the step as a CUDA graph, which virtual GPUs cannot do."""

import torch
from torch import nn


def build():
    model = nn.Linear(16, 4).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def train(model, inputs):
    model.optimizer.zero_grad()
    model(inputs["x"].to("cuda:0")).square().mean().backward()
    model.optimizer.step()


def step(model, inputs):
    train(model, inputs)
    graph = torch.cuda.CUDAGraph()  # wrong  # fault
    with torch.cuda.graph(graph):  # wrong
        train(model, inputs)  # wrong
    graph.replay()  # wrong
