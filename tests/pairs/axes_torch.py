"""Models with axes of equal lengths: square images, as many steps as features, as many heads as steps."""

import torch
from torch import nn

DOWN = {
    "conv": lambda: nn.Conv2d(6, 6, 3, stride=2, padding=1),
    "max": lambda: nn.MaxPool2d(3, 2, 1),
    "average": lambda: nn.AvgPool2d(3, 2, 1),
    "transposed": lambda: nn.ConvTranspose2d(6, 6, 3, stride=2, padding=1, output_padding=1),
}


class Images(nn.Module):
    def __init__(self, down):
        super().__init__()
        self.conv1, self.act, self.down = nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), DOWN[down]()
        self.conv2, self.head = nn.Conv2d(6, 6, 3, padding=1), nn.Linear(6, 5)

    def forward(self, x):
        x = self.down(self.act(self.conv1(x)))
        return self.head(torch.relu(self.conv2(x)).mean((2, 3)))


class Steps(nn.Module):
    """As many steps as features."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv1d(8, 8, 3, padding=1), nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x):
        return self.head(torch.tanh(self.norm(self.conv(x).transpose(1, 2))))


class Maps(nn.Module):
    """As many samples as heads as steps: the attention's weights have four axes of one length."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(16, 16) for _ in range(4))
        self.softmax = nn.Softmax(-1)

    def forward(self, x):
        n, t, d = x.shape
        q, k, v = (layer(x).reshape(n, t, 4, 4).transpose(1, 2) for layer in (self.q, self.k, self.v))
        weights = self.softmax(q @ k.transpose(2, 3) / 2)
        return self.out((weights @ v).transpose(1, 2).reshape(n, t, d))
