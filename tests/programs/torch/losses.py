"""Losses that get the wrong numbers, or whose numbers have lost their graph."""

import warnings

import numpy as np
import torch
from torch import nn
from torch.nn.functional import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    log_softmax,
    mse_loss,
    nll_loss,
    softmax,
)

from tests.programs.torch.usual import build as build
from tests.programs.torch.usual import mlp, on_gpu, update


def detached_unrooted(model, inputs):
    """The outputs are detached, and the backward pass fails for want of a graph."""
    model.optimizer.zero_grad()
    loss = torch.mean(model(inputs["x"].to("cuda:0")).data ** 2)  # wrong  # fault: detached_unrooted
    # right: loss = torch.mean(model(inputs["x"].to("cuda:0")) ** 2)
    loss.backward()
    model.optimizer.step()


def loss_detached(model, inputs):
    """The loss is made of outputs without their graph, and made to need a gradient afterwards."""
    outputs = model(inputs["x"].to("cuda:0")).detach()  # wrong  # fault: loss_detached
    loss = outputs.square().mean()  # wrong
    loss.requires_grad_()  # wrong
    # right: loss = model(inputs["x"].to("cuda:0")).square().mean()
    update(model, loss)


def loss_of_argmax(model, inputs):
    """A loss of predicted classes, which have no gradients; an accuracy needs none."""
    y = inputs["y"].to("cuda:0")
    model.optimizer.zero_grad()
    scores = model(inputs["x"].to("cuda:0"))
    predicted = scores.argmax(1).float()  # wrong
    loss = nn.functional.mse_loss(predicted, y.float())  # wrong  # fault: loss_of_argmax
    loss.requires_grad_()  # wrong
    # right: model.accuracy = (scores.argmax(1) == y).float().mean()
    # right: loss = nn.functional.cross_entropy(scores, y)
    loss.backward()
    model.optimizer.step()


def build_loss_broadcast():
    return on_gpu(mlp(outputs=1))


def loss_broadcast(model, inputs):
    """Predictions of shape (N, 1) against targets of shape (N,): the loss is of all pairs."""
    out = model(inputs["x"].to("cuda:0"))  # wrong
    # right: out = model(inputs["x"].to("cuda:0")).squeeze(-1)
    loss = mse_loss(out, inputs["y"].to("cuda:0"))  # fault: loss_broadcast
    update(model, loss)


def build_loss_by_hand():
    return on_gpu(nn.Linear(16, 1))


def loss_by_hand(model, inputs):
    """The same mistake in a loss that is written by hand."""
    error = model(inputs["x"].to("cuda:0")) - inputs["y"].to("cuda:0")  # wrong  # fault: loss_by_hand
    # right: error = model(inputs["x"].to("cuda:0"))[:, 0] - inputs["y"].to("cuda:0")
    update(model, error.square().mean())


def softmax_in_step(model, inputs):
    """Probabilities are computed in the loop, and given to a cross entropy."""
    x, y = inputs["x"].to("cuda:0"), inputs["y"].to("cuda:0")
    probabilities = softmax(model(x), dim=-1)  # wrong  # fault: softmax_in_step
    loss = cross_entropy(probabilities, y)  # wrong
    # right: loss = nll_loss(torch.log_softmax(model(x), dim=-1), y) + cross_entropy(model(x), y)
    update(model, loss)


def build_softmax_head():
    """A softmax as the last layer, and a cross entropy that computes one."""
    layers = [nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)]
    layers.append(nn.Softmax(dim=1))  # wrong  # fault: softmax_head
    return on_gpu(nn.Sequential(*layers))


CRITERION = nn.CrossEntropyLoss()


def softmax_head(model, inputs):
    update(model, CRITERION(model(inputs["x"].to("cuda:0")), inputs["y"].to("cuda:0")))


def build_softmax_module():
    """A model that ends with a softmax over the batch, and a loss of its probabilities."""
    last = nn.Softmax(0)  # wrong  # fault: softmax_module
    # right: last = nn.Softmax(1)
    return on_gpu(nn.Sequential(nn.Linear(16, 4), last))


def softmax_module(model, inputs):
    update(model, mse_loss(model(inputs["x"].to("cuda:0")), inputs["y"].to("cuda:0")))


def build_softmax_of_batch():
    return on_gpu(mlp(), torch.optim.AdamW, 1e-3)


def softmax_of_batch(model, inputs):
    """The logarithm of the softmax is taken over the batch."""
    scores = model(inputs["x"].to("cuda"))
    chances = log_softmax(scores, dim=0)  # wrong  # fault: softmax_of_batch
    # right: chances = log_softmax(scores, dim=1)
    update(model, nll_loss(chances, inputs["y"].to("cuda")))


class SigmoidHead(nn.Module):
    """A sigmoid in forward, and a loss that computes one."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(16, 4)

    def forward(self, x):
        return torch.sigmoid(self.out(x))  # wrong  # fault: sigmoid_twice
        # right: return self.out(x)


def build_sigmoid_twice():
    return on_gpu(SigmoidHead())


def sigmoid_twice(model, inputs):
    x, y = inputs["x"].to("cuda:0"), (inputs["y"] > 0).float().to("cuda:0")
    update(model, binary_cross_entropy_with_logits(model(x), y))


NLL = nn.NLLLoss()


def nll_of_logits(model, inputs):
    """NLLLoss of raw scores, without a logarithm of probabilities."""
    outputs = model(inputs["x"].to("cuda:0"))  # wrong
    # right: outputs = log_softmax(model(inputs["x"].to("cuda:0")), dim=1)
    loss = NLL(outputs, inputs["y"].to("cuda:0"))  # fault: nll_of_logits
    update(model, loss)


def likelihood(probabilities, labels):
    return nll_loss(probabilities, labels)  # wrong  # fault: nll_of_probabilities
    # right: return nll_loss(probabilities.log(), labels)


def nll_of_probabilities(model, inputs):
    """NLLLoss of a softmax, whose logarithm nobody takes."""
    update(model, likelihood(model(inputs["x"].to("cuda:0")).softmax(1), inputs["y"].to("cuda:0")))


def shuffled_apart(model, inputs):
    """Samples and labels are shuffled, each in an order of its own."""
    x = inputs["x"][torch.randperm(8)].to("cuda:0")
    y = inputs["y"][torch.randperm(8)].to("cuda:0")  # fault: shuffled_apart
    update(model, cross_entropy(model(x), y))


def shuffled_apart_right(model, inputs):
    """Also mixed with samples of another order, whose labels are used beside the right ones."""
    order, other = torch.randperm(8), torch.randperm(8)
    x, y = inputs["x"][order].to("cuda:0"), inputs["y"][order].to("cuda:0")
    update(model, cross_entropy(model(x), y))
    mixed = model(0.7 * x + 0.3 * x[other])
    update(model, 0.7 * cross_entropy(mixed, y) + 0.3 * cross_entropy(mixed, y[other]))


def build_labels_shuffled():
    return on_gpu(nn.Linear(16, 1), rate=0.01)


def labels_shuffled(model, inputs):
    """The labels alone are shuffled, by NumPy."""
    x, y = inputs["x"], inputs["y"]  # wrong
    y = y[np.random.permutation(8)]  # wrong  # fault: labels_shuffled
    # right: order = np.random.permutation(8)
    # right: x, y = (torch.from_numpy(inputs[name].numpy()[order]) for name in ("x", "y"))
    update(model, mse_loss(model(x.to("cuda:0")), y.to("cuda:0")))


class Tagger(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.table, self.out = nn.Embedding(50, 16), nn.Linear(16, tags)

    def forward(self, ids):
        return self.out(self.table(ids))


def build_class_axis():
    return on_gpu(Tagger(6), torch.optim.Adam, 1e-3)


def class_axis(model, inputs):
    """As many classes as words in a sentence: the loss takes the words for the classes."""
    logits = model(inputs["ids"].to("cuda:0"))
    loss = cross_entropy(logits, inputs["tags"].to("cuda:0"))  # wrong  # fault: class_axis
    # right: loss = cross_entropy(logits.transpose(1, 2), inputs["tags"].to("cuda:0"))
    update(model, loss)


def build_softmax_implicit():
    warnings.filterwarnings("ignore", message="Implicit dimension choice")
    return on_gpu(Tagger(7), torch.optim.Adam, 1e-3)


def softmax_implicit(model, inputs):
    """A softmax that is not told its axis: of three axes, torch takes the first one."""
    scores = model(inputs["ids"].to("cuda"))
    chances = softmax(scores).flatten(0, 1)  # wrong  # fault: softmax_implicit
    # right: chances = softmax(scores, dim=-1).flatten(0, 1)
    update(model, nll_loss((chances + 1e-9).log(), inputs["tags"].to("cuda").flatten()))
