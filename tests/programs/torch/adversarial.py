"""A generator and its critic: a detach on purpose, and two optimizers that take turns."""

import torch
from torch import nn
from torch.nn import functional


class Adversaries(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(), nn.Linear(32, 16))
        self.critic = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(), nn.Linear(32, 1))

    def forward(self, noise):
        return self.generator(noise)


def build_right():
    model = Adversaries().to("cuda:0")
    model.of_generator = torch.optim.Adam(model.generator.parameters(), lr=2e-4)
    model.of_critic = torch.optim.Adam(model.critic.parameters(), lr=2e-4)
    return model


def judged(model, samples, real):
    scores = model.critic(samples)
    return functional.binary_cross_entropy_with_logits(scores, torch.full_like(scores, real))


def step_right(model, inputs):
    real = inputs["x"].to("cuda:0")
    fake = model(torch.randn(len(real), 8, device="cuda:0"))

    model.of_critic.zero_grad()
    (judged(model, real, 1.0) + judged(model, fake.detach(), 0.0)).backward()
    model.of_critic.step()

    model.of_generator.zero_grad()
    judged(model, fake, 1.0).backward()
    model.of_generator.step()
