"""The losses are put into a list with their graphs: memory grows."""

from tests.programs.torch.usual import build as build

HISTORY = []


def step(model, inputs):
    model.optimizer.zero_grad()
    loss = model(inputs["x"].to("cuda:0")).square().mean()
    loss.backward()
    model.optimizer.step()
    HISTORY.append(loss)  # wrong  # fault
    # right: HISTORY.append(loss.detach())
