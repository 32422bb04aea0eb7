"""The loss is made of outputs without their graph, and made to need a gradient afterwards."""

from tests.programs.torch.usual import build as build


def step(model, inputs):
    model.optimizer.zero_grad()
    outputs = model(inputs["x"].to("cuda:0")).detach()  # wrong  # fault
    loss = outputs.square().mean()  # wrong
    loss.requires_grad_()  # wrong
    # right: loss = model(inputs["x"].to("cuda:0")).square().mean()
    loss.backward()
    model.optimizer.step()
