"""A print of the loss in every step, forgotten after debugging."""

from tests.programs.torch.usual import build as build


def train(model, inputs):
    model.optimizer.zero_grad()
    loss = model(inputs["x"].to("cuda:0")).square().mean()
    loss.backward()
    model.optimizer.step()
    return loss


def step(model, inputs):
    loss = train(model, inputs)  # wrong
    print("loss:", loss)  # wrong  # fault
    # right: train(model, inputs)
