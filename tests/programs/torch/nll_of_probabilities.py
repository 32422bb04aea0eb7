"""NLLLoss of a softmax, whose logarithm nobody takes."""

from torch.nn import functional

from tests.programs.torch.usual import build as build


def train(model, inputs, loss_of):
    model.optimizer.zero_grad()
    loss_of(model(inputs["x"].to("cuda:0")).softmax(1), inputs["y"].to("cuda:0")).backward()
    model.optimizer.step()


def loss_of(probabilities, labels):
    return functional.nll_loss(probabilities, labels)  # fault


def step(model, inputs):
    train(model, inputs, loss_of)  # wrong
    # right: train(model, inputs, lambda probabilities, labels: functional.nll_loss(probabilities.log(), labels))
