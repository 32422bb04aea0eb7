"""Ports of keras.io's and of papers' networks to PyTorch: U-Net, WaveNet, PointNet, ESPCN, ConvMixer, MLP-Mixer."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


def double(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU()
    )


class UNet(nn.Module):
    """The original U-Net with "same" padding and transposed convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.bottom = double(3, 8), double(8, 16), double(16, 32)
        self.up2, self.conv2 = nn.ConvTranspose2d(32, 16, 2, 2), double(32, 16)
        self.up1, self.conv1 = nn.ConvTranspose2d(16, 8, 2, 2), double(16, 8)
        self.out = nn.Conv2d(8, 3, 1)

    def forward(self, x):
        first = self.down1(x)
        second = self.down2(F.max_pool2d(first, 2))
        x = self.bottom(F.max_pool2d(second, 2))
        x = self.conv2(torch.cat([self.up2(x), second], 1))
        x = self.conv1(torch.cat([self.up1(x), first], 1))
        return self.out(x)


def unet() -> nn.Module:
    return UNet()


class WaveNet(nn.Module):
    """Gated dilated causal convolutions with residual and skip connections."""

    def __init__(self, width=16, dilations=(1, 2, 4)) -> None:
        super().__init__()
        self.dilations = dilations
        self.start = nn.Conv1d(1, width, 1)
        self.filters = nn.ModuleList(nn.Conv1d(width, width, 2, dilation=d) for d in dilations)
        self.gates = nn.ModuleList(nn.Conv1d(width, width, 2, dilation=d) for d in dilations)
        self.skips = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in dilations)
        self.residuals = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in dilations)
        self.end1, self.end2 = nn.Conv1d(width, width, 1), nn.Conv1d(width, 8, 1)

    def forward(self, x):
        x, total = self.start(x), 0
        for d, f, g, skip, residual in zip(
            self.dilations, self.filters, self.gates, self.skips, self.residuals, strict=True
        ):
            padded = F.pad(x, (d, 0))
            y = torch.tanh(f(padded)) * torch.sigmoid(g(padded))
            total = total + skip(y)
            x = x + residual(y)
        return self.end2(F.relu(self.end1(F.relu(total))))


def wavenet_gated() -> nn.Module:
    return WaveNet()


class TNet(nn.Module):
    """PointNet's transformation network: a matrix for each cloud, near the identity."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.convs = nn.Sequential(nn.Conv1d(size, 8, 1), nn.ReLU(), nn.Conv1d(8, 16, 1), nn.ReLU())
        self.fc1, self.fc2 = nn.Linear(16, 8), nn.Linear(8, size * size)

    def forward(self, x):
        matrix = self.fc2(F.relu(self.fc1(self.convs(x).amax(2)))).view(-1, self.size, self.size)
        return torch.bmm(x.transpose(1, 2), matrix + torch.eye(self.size)).transpose(1, 2)


class PointNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input_transform, self.conv1 = TNet(3), nn.Conv1d(3, 8, 1)
        self.feature_transform, self.conv2 = TNet(8), nn.Conv1d(8, 16, 1)
        self.head = nn.Linear(16, 5)

    def forward(self, points):
        x = F.relu(self.conv1(self.input_transform(points)))
        x = F.relu(self.conv2(self.feature_transform(x)))
        return F.log_softmax(self.head(x.amax(2)), dim=1)


def pointnet() -> nn.Module:
    return PointNet()


def super_resolution() -> nn.Module:
    """Return ESPCN, as in pytorch.org's examples: a pixel shuffle at the end."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2),
        nn.Tanh(),
        nn.Conv2d(16, 8, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(8, 4, 3, padding=1),
        nn.PixelShuffle(2),
    )


class MixerBlock(nn.Module):
    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.tokens = nn.Sequential(nn.Linear(patches, 24), nn.GELU(), nn.Linear(24, patches))
        self.channels = nn.Sequential(nn.Linear(width, 40), nn.GELU(), nn.Linear(40, width))

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    """MLP-Mixer; 16 patches of 16 channels, so that the shapes do not tell the axes."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.blocks = nn.Sequential(MixerBlock(16, 16), MixerBlock(16, 16))
        self.head = nn.Linear(16, 5)

    def forward(self, image):
        x = self.patches(image).permute(0, 2, 3, 1).flatten(1, 2)
        return self.head(self.blocks(x).mean(1))


def mlp_mixer() -> nn.Module:
    return Mixer()


class VAE(nn.Module):
    """tutorials_torch.VAE with the padding that Keras's strided convolutions have: at the end alone."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, 2), nn.Conv2d(8, 16, 3, 2)
        self.dense, self.project = nn.Linear(16 * 49, 16), nn.Linear(2, 16 * 49)
        self.z_mean, self.z_log_var = nn.Linear(16, 2), nn.Linear(16, 2)
        self.up1, self.up2 = nn.ConvTranspose2d(16, 16, 3, 2), nn.ConvTranspose2d(16, 8, 3, 2)
        self.out = nn.ConvTranspose2d(8, 1, 3, 1, 1)

    def forward(self, image, noise):
        x = F.relu(self.conv1(F.pad(image, (0, 1, 0, 1))))
        x = F.relu(self.conv2(F.pad(x, (0, 1, 0, 1))))
        x = F.relu(self.dense(x.permute(0, 2, 3, 1).flatten(1)))
        mean, log_var = self.z_mean(x), self.z_log_var(x)
        z = mean + torch.exp(0.5 * log_var) * noise
        x = F.relu(self.project(z)).view(-1, 7, 7, 16).permute(0, 3, 1, 2)
        x = F.relu(self.up1(x)[..., :-1, :-1])
        x = F.relu(self.up2(x)[..., :-1, :-1])
        return torch.sigmoid(self.out(x)), mean, log_var


def vae_padded() -> nn.Module:
    return VAE()
