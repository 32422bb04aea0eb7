"""Captures a part of the step as a CUDA graph, which virtual GPUs cannot do."""

import torch

from tests.programs.torch.usual import build as build


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
