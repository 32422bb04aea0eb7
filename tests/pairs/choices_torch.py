"""Small models whose weights could be put together in several ways of one shape: one for each kind of choice."""

import torch
from torch import nn
from torch.nn import functional


class Gated(nn.Module):
    """A gated feed-forward layer: both projections get the same input."""

    def __init__(self, approximate="none"):
        super().__init__()
        self.wi_0, self.wi_1, self.wo = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 8)
        self.act = nn.GELU(approximate=approximate)

    def forward(self, x):
        return self.wo(self.act(self.wi_0(x)) * self.wi_1(x))


class Named(nn.Module):
    """The same with telling names."""

    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.norm = nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x):
        return self.norm(x + self.fc2(torch.tanh(self.fc1(x))))


class Tower(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.embeddings = nn.Linear(8, 8)
        self.encoder = nn.ModuleList(Block() for _ in range(depth))

    def forward(self, x):
        x = self.embeddings(x)
        for block in self.encoder:
            x = block(x)
        return x


class Towers(nn.Module):
    """Three towers of one width and depth, of which two are named as in CLIP."""

    def __init__(self, depth=2):
        super().__init__()
        self.text_model, self.vision_model, self.audio_model = Tower(depth), Tower(depth), Tower(depth)

    def forward(self, x):
        text, vision, audio = self.text_model(x[:, :8]), self.vision_model(x[:, 8:16]), self.audio_model(x[:, 16:])
        return torch.cat([text * vision, vision * audio], -1)


class Conv(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.conv = nn.Conv2d(8, 8, size, padding=size // 2, bias=False)
        self.bn = nn.BatchNorm2d(8, eps=0.001)

    def forward(self, x):
        return torch.relu(self.bn(self.conv(x)))


class Inception(nn.Module):
    """Branches of different depths: a functional Keras model calls the deepest first, in whatever order they stand."""

    def __init__(self, blocks=2):
        super().__init__()
        self.blocks = nn.ModuleList(Branches() for _ in range(blocks))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.branch1x1 = Conv(1)
        self.branch3x3_1, self.branch3x3_2 = Conv(1), Conv(3)
        self.branch3x3dbl_1, self.branch3x3dbl_2, self.branch3x3dbl_3 = Conv(1), Conv(3), Conv(3)

    def forward(self, x):
        second = self.branch3x3_2(self.branch3x3_1(x))
        third = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return self.branch1x1(x) - 2 * second + 3 * third


class Projection(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x):
        return self.norm(self.lin(x))


class Attention(nn.Module):
    """Query, key and value in modules of their own."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = Projection(), Projection(), Projection()

    def forward(self, x):
        scores = self.q(x) @ self.k(x).transpose(-1, -2) / 8**0.5
        return torch.tril(scores).softmax(-1) @ self.v(x)


class Normed(nn.Module):
    """A norm after each of two matrices."""

    def __init__(self, batch=False):
        super().__init__()
        norm = nn.BatchNorm1d if batch else nn.LayerNorm
        self.fc1, self.norm1 = nn.Linear(8, 8), norm(8, eps=0.001)
        self.fc2, self.norm2 = nn.Linear(8, 8), norm(8, eps=0.001)

    def forward(self, x):
        return self.norm2(self.fc2(torch.tanh(self.norm1(self.fc1(x)))))


class Positions(nn.Module):
    """A table of positions whose first rows are for padding, and a parameter of zeros that ports leave out."""

    def __init__(self, offset=2):
        super().__init__()
        self.positions, self.offset = nn.Embedding(5 + 2, 8), offset
        self.extra = nn.Parameter(torch.zeros(5, 8), requires_grad=False)

    def forward(self, x):
        return x * self.positions(torch.arange(5) + self.offset) + self.extra


class Grouped(nn.Module):
    """Query, key and value of 4 and 2 heads in one matrix: one after the other, or group by group."""

    def __init__(self, by_group=False):
        super().__init__()
        self.qkv, self.by_group = nn.Linear(8, 24), by_group

    def forward(self, x):
        packed = self.qkv(x)
        if self.by_group:
            packed = packed.reshape(*x.shape[:-1], 2, 4, 3)
            query, key, value = (part.flatten(-3) for part in packed.split([2, 1, 1], -2))
        else:
            query, key, value = packed.split([12, 6, 6], -1)
        return torch.tanh(query), torch.sigmoid(key), value


class Experts(nn.Module):
    """Gate and up of several experts in one array: in two halves, or by turns."""

    def __init__(self, by_turns=False, experts=3):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.randn(experts, 2 * 6, 8) / 3)
        self.down_proj = nn.Parameter(torch.randn(experts, 8, 6) / 3)
        self.by_turns = by_turns

    def forward(self, x):
        packed = torch.einsum("nd,ehd->enh", x, self.gate_up_proj)
        gate, up = (packed[..., ::2], packed[..., 1::2]) if self.by_turns else packed.chunk(2, -1)
        return torch.einsum("enh,edh->nd", functional.silu(gate) * up, self.down_proj)


class Heads(nn.Module):
    """Two heads of one shape, of which the second takes part in nothing."""

    def __init__(self):
        super().__init__()
        self.trunk, self.main, self.spare = nn.Linear(8, 8), nn.Linear(8, 3), nn.Linear(8, 3)

    def forward(self, x):
        return self.main(torch.tanh(self.trunk(x)))


class Pooled(nn.Module):
    """`detached`: the last layer takes part, but gets no gradient."""

    def __init__(self, detached=False):
        super().__init__()
        self.trunk, self.detached = nn.Linear(8, 8), detached
        self.extra = nn.Linear(8, 8)

    def forward(self, x):
        x = torch.tanh(self.trunk(x))
        return x + self.extra(x).detach() if self.detached else x


class Stepped(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        return 2 * self.fc(x)


class Unfolded(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(3 * 4 * 4, 16)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        p = functional.unfold(x, 4, stride=4).transpose(1, 2)
        return self.head(torch.tanh(self.proj(p)).mean(1))


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], 8)
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
        return self.head(h)


class Turned(nn.Module):
    def __init__(self):
        super().__init__()
        self.turned = nn.ConvTranspose2d(3, 4, 3, stride=1, padding=1, bias=True)
        self.c = nn.Conv2d(4, 2, 3, padding=1)

    def forward(self, x):
        return self.c(torch.tanh(self.turned(x)))


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(6)

    def forward(self, x):
        kept, gate = x.chunk(2, -1)
        return kept * self.norm(gate)


class Spatial(nn.Module):
    """What the block makes before its gate cannot be compared: only within the gate are there inputs that can."""

    def __init__(self):
        super().__init__()
        self.inner, self.gate, self.outer = nn.Linear(8, 12), Gate(), nn.Linear(6, 8)

    def forward(self, x):
        return self.outer(self.gate(nn.functional.gelu(self.inner(x))))
