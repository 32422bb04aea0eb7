"""Reads for which the host waits, or does not wait; and graphs that are kept from step to step."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from tests.programs.torch.losses import Tagger
from tests.programs.torch.usual import build as build
from tests.programs.torch.usual import on_gpu, train, update

LOSSES, FEATURES = [], []


def loss_on_cpu(model, inputs):
    """The loss is taken through .cpu(), so that every step waits for the GPU."""
    loss = mse_loss(model(inputs["x"].to("cuda:0")), inputs["y"].to("cuda:0"))
    loss = loss.cpu()  # wrong  # fault: loss_on_cpu
    update(model, loss)


class Trainer:
    def __init__(self):
        self.total = 0.0

    def fit(self, model, inputs, value):
        loss = mse_loss(model(inputs["x"].to("cuda:0")), inputs["y"].to("cuda:0"))
        update(model, loss)
        self.total += value(loss)


TRAINER = Trainer()


def loss_item(model, inputs):
    """The running loss is kept as a Python number: every step waits for the GPU."""
    TRAINER.fit(model, inputs, lambda loss: loss.item())  # wrong  # fault: loss_item
    # right: TRAINER.fit(model, inputs, lambda loss: loss.detach())


def with_predictions():
    model = on_gpu(nn.Linear(16, 4))
    model.predicted = []
    return model


def classify(model, inputs):
    logits = model(inputs["x"].to("cuda:0"))
    update(model, cross_entropy(logits, inputs["y"].to("cuda:0")))
    return logits.detach()


build_loss_list = with_predictions


def loss_list(model, inputs):
    """The predictions of each batch go to a list of numbers: every step waits for the GPU."""
    predicted = classify(model, inputs).argmax(-1)
    model.predicted += predicted.tolist()  # wrong  # fault: loss_list
    # right: model.predicted.append(predicted)


build_read_early = with_predictions


def read_early(model, inputs):
    """Predictions are copied to the host without waiting, and read at once."""
    logits = classify(model, inputs)
    scores = logits.to("cpu", non_blocking=True)  # fault: read_early
    # right: torch.cuda.synchronize()
    model.predicted.append(scores.numpy())


def loss_printed(model, inputs):
    """A print of the loss in every step, forgotten after debugging."""
    loss = train(model, inputs["x"].to("cuda:0"))  # wrong
    print("loss:", loss)  # wrong  # fault: loss_printed
    # right: train(model, inputs["x"].to("cuda:0"))


def loss_condition(model, inputs):
    """An `if` on the loss: Python has to wait for the GPU to know which way to go."""
    loss = model(inputs["x"].to("cuda:0")).square().mean()
    if loss > 100:  # wrong  # fault: loss_condition
        loss = loss / loss.detach()  # wrong
    # right: loss = torch.where(loss > 100, loss / loss.detach(), loss)
    update(model, loss)


def build_boolean_index():
    return on_gpu(Tagger(6))


def boolean_index(model, inputs):
    """Padding is taken out by a boolean index: the host has to know how many are left."""
    ids, tags = inputs["ids"].to("cuda:0"), inputs["tags"].to("cuda:0")
    logits = model(ids)
    loss = cross_entropy(logits[ids != 0], tags[ids != 0])  # wrong  # fault: boolean_index
    # right: tags = tags.masked_fill(ids == 0, -100)
    # right: loss = cross_entropy(logits.flatten(0, 1), tags.flatten(), ignore_index=-100)
    update(model, loss)


def graphed(model, inputs):
    """Captures a part of the step as a CUDA graph, which virtual GPUs cannot do."""
    x = inputs["x"].to("cuda:0")
    train(model, x)
    graph = torch.cuda.CUDAGraph()  # wrong  # fault: graphed
    with torch.cuda.graph(graph):  # wrong
        train(model, x)  # wrong
    graph.replay()  # wrong


def build_loss_added_up():
    model = on_gpu(nn.Linear(16, 4))
    model.total = 0
    return model


def loss_added_up(model, inputs):
    """The loss of every step is added up with its graph: memory grows."""
    loss = train(model, inputs["x"].to("cuda:0"))
    model.total += loss  # wrong  # fault: loss_added_up
    # right: model.last = loss
    # right: model.total += loss.detach()


def losses_listed(model, inputs):
    """The losses are put into a list with their graphs: memory grows."""
    model.optimizer.zero_grad()
    loss = model(inputs["x"].to("cuda:0")).square().mean()
    loss.backward()
    model.optimizer.step()
    LOSSES.append(loss)  # wrong  # fault: losses_listed
    # right: LOSSES.append(loss.detach())


def build_features_listed():
    parts = {"encoder": nn.Sequential(nn.Linear(16, 32), nn.Tanh()), "head": nn.Linear(32, 4)}
    return on_gpu(nn.ModuleDict(parts), torch.optim.AdamW, 1e-3)


def features_listed(model, inputs):
    """The features of all batches are kept for a plot, with their graphs."""
    features = model["encoder"](inputs["x"].to("cuda"))
    update(model, cross_entropy(model["head"](features), inputs["y"].to("cuda")))
    FEATURES.append(features)  # wrong  # fault: features_listed
    # right: FEATURES.append(features.detach())


class Bank(nn.Module):
    """A bank of features grows by those of each batch, with the graph of all batches before."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(16, 8)
        self.register_buffer("bank", torch.zeros(1, 8))

    def forward(self, x):
        features = self.encoder(x).tanh()
        distances = torch.cdist(features, self.bank.detach())
        self.bank = torch.cat([self.bank, features])  # wrong  # fault: features_banked
        # right: self.bank = torch.cat([self.bank, features]).detach()
        return distances


def build_features_banked():
    return on_gpu(Bank())


def features_banked(model, inputs):
    update(model, model(inputs["x"].to("cuda")).mean())


class Cell(nn.Module):
    """A recurrent cell that keeps its own hidden state, with the graph."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 12), nn.Linear(12, 12)
        self.register_buffer("hidden", torch.zeros(4, 12))

    def forward(self, x):
        hidden = self.hidden  # wrong  # fault: hidden_kept
        # right: hidden = self.hidden.detach()
        for part in x.unbind(1):
            hidden = torch.tanh(self.inner(part) + self.outer(hidden))
        self.hidden = hidden
        return hidden


def build_hidden_kept():
    return on_gpu(Cell(), torch.optim.Adam, 1e-3)


def hidden_kept(model, inputs):
    model.optimizer.zero_grad()
    model(inputs["x"].to("cuda")).square().mean().backward(retain_graph=True)
    model.optimizer.step()


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.lstm, self.out = nn.Embedding(50, 16), nn.LSTM(16, 16), nn.Linear(16, 50)

    def forward(self, ids, state):
        hidden, state = self.lstm(self.table(ids), state)
        return self.out(hidden), state


def build_state_kept():
    model = on_gpu(Language(), rate=0.5)
    model.memory = None
    return model


def learn(model, ids, logits, **how):
    loss = cross_entropy(logits.flatten(0, 1), ids[1:].flatten())
    model.optimizer.zero_grad()
    loss.backward(**how)
    model.optimizer.step()


def state_kept(model, inputs):
    """An LSTM's state goes on to the next step with its graph, which is kept for that."""
    ids = inputs["ids"].to("cuda")
    logits, model.memory = model(ids[:-1], model.memory)  # wrong  # fault: state_kept
    learn(model, ids, logits, retain_graph=True)  # wrong
    # right: logits, state = model(ids[:-1], model.memory)
    # right: model.memory = tuple(part.detach() for part in state)
    # right: learn(model, ids, logits)
