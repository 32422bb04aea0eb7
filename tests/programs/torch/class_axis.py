"""As many classes as words in a sentence: the loss takes the words for the classes."""

import torch
from torch.nn import functional

from tests.programs.torch.boolean_index import Tagger


def build():
    model = Tagger().to("cuda:0")
    model.optimizer = torch.optim.Adam(model.parameters())
    return model


def step(model, inputs):
    model.optimizer.zero_grad()
    logits = model(inputs["ids"].to("cuda:0"))
    loss = functional.cross_entropy(logits, inputs["tags"].to("cuda:0"))  # wrong  # fault
    # right: loss = functional.cross_entropy(logits.transpose(1, 2), inputs["tags"].to("cuda:0"))
    loss.backward()
    model.optimizer.step()
