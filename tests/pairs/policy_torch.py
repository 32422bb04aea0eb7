"""An actor and a critic that two optimizers of their own train, by rewards."""

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 4))
        self.critic = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 1))
        self.optimizers = [
            torch.optim.SGD(self.actor.parameters(), lr=0.25, momentum=0.5),
            torch.optim.SGD(self.critic.parameters(), lr=0.0625),
        ]

    def forward(self, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.actor(state), self.critic(state).squeeze(-1)


def step(model: Policy, _: torch.optim.Optimizer, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    logits, value = model(batch["state"])
    advantage = batch["target.reward"] - value
    chosen = torch.distributions.Categorical(logits=logits).log_prob(batch["target.action"])
    loss = -(chosen * advantage.detach()).mean() + advantage.square().mean()
    for optimizer in model.optimizers:
        optimizer.zero_grad()
    loss.backward()
    for optimizer in model.optimizers:
        optimizer.step()
    return loss
