"""Ids of words that are made floats before the embedding looks them up."""

import torch

from tests.programs.torch.double_ids import Encoder, train


def build():
    model = Encoder().to("cuda:0")
    model.optimizer = torch.optim.Adam(model.parameters())
    return model


def step(model, inputs):
    src = inputs["src"].float()  # wrong  # fault
    train(model, src.to("cuda:0"))  # wrong
    # right: train(model, inputs["src"].to("cuda:0"))
