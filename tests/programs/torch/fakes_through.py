"""The generator's pass needs a graph that the critic's pass has used up."""

import torch

from tests.programs.torch.fakes_attached import build as build
from tests.programs.torch.fakes_attached import loss_of


def step(model, inputs):
    fake = model.generator(torch.ones(8, 8, device="cuda"))
    model.for_critic.zero_grad()
    loss = loss_of(model.critic(inputs["x"].to("cuda")), 1)
    loss = loss + loss_of(model.critic(fake), 0)  # wrong  # fault
    # right: loss = loss + loss_of(model.critic(fake.detach()), 0)
    loss.backward()
    model.for_critic.step()
    model.for_generator.zero_grad()
    loss_of(model.critic(fake), 1).backward()
    model.for_generator.step()
