"""A net trained on what fools it: each step attacks it in evaluation mode before it trains."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

SHARE = 0.7


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.hidden, self.head = nn.Conv2d(1, 3, 3), nn.Linear(3 * 3 * 2, 8), nn.Linear(8, 4)
        self.dropout = nn.Dropout(0.25)

    def forward(self, x):
        x = torch.flatten(functional.max_pool2d(torch.tanh(self.conv(x)), 2), 1)
        return self.head(self.dropout(torch.tanh(self.hidden(x))))


def attack(model, images, labels):
    model.eval()
    images = images.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(functional.cross_entropy(model(images), labels), images)
    model.train()
    return (images + 0.1 * gradient.sign()).detach()


data = TensorDataset(torch.rand(48, 1, 8, 6), torch.randint(4, (48,)))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for images, labels in DataLoader(data, batch_size=12, shuffle=True):
    fooled = attack(model, images, labels)
    optimizer.zero_grad()
    losses = functional.cross_entropy(model(images), labels), functional.cross_entropy(model(fooled), labels)
    ((1 - SHARE) * losses[0] + SHARE * losses[1]).backward()
    optimizer.step()
