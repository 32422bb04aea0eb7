"""An autoencoder of images: transposed convolutions with the three usual paddings, PReLU, and a sigmoid."""

import torch
from torch import nn


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(2, 6, 3, stride=2, padding=1), nn.PReLU(6), nn.Conv2d(6, 10, 2, stride=2), nn.Tanh()
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(10, 10, 2, stride=2),
            nn.PReLU(10),
            nn.ConvTranspose2d(10, 6, 3, stride=2, padding=1, output_padding=1),
            nn.PReLU(6),
            nn.ConvTranspose2d(6, 2, 4, stride=2, padding=1),
        )
        self.out = nn.Sigmoid()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.out(self.decoder(self.encoder(images)))


def build() -> nn.Module:
    return AutoEncoder()
