"""Models of which something is on a wrong device, or goes from one to another needlessly."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, linear

from tests.programs.torch.usual import on_gpu, train, update, with_optimizer
from tests.programs.torch.usual import step as step


def from_host(model, inputs):
    train(model, inputs["x"])


class Stack(nn.Module):
    """Layers made in a loop, all of them on the first device."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList()
        for _ in range(4):
            self.layers.append(nn.Linear(64, 64).to("cuda:0"))  # wrong  # fault: one_device
            # right: self.layers.append(nn.Linear(64, 64).to(f"cuda:{len(self.layers) % 2}"))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x.to(layer.weight.device)))
        return x


def build_one_device():
    return with_optimizer(Stack())


one_device = from_host


class Pipeline(nn.Module):
    """A model cut in two at the wrong layer: one device holds nine tenths of it."""

    def __init__(self):
        super().__init__()
        layers = [nn.Linear(64, 64) for _ in range(10)]
        cut = 1  # wrong
        # right: cut = 5
        self.first = nn.Sequential(*layers[:cut]).to("cuda:0")
        self.second = nn.Sequential(*layers[cut:]).to("cuda:1")  # fault: lopsided

    def forward(self, x):
        return self.second(self.first(x.to("cuda:0")).to("cuda:1"))


def build_lopsided():
    return with_optimizer(Pipeline())


lopsided = from_host


class Stages(nn.Module):
    """A model on two of three devices."""

    def __init__(self):
        super().__init__()
        self.devices = ("cuda:0", "cuda:1")  # wrong
        # right: self.devices = ("cuda:0", "cuda:1", "cuda:2")
        self.stages = nn.ModuleList(nn.Linear(16, 16).to(device) for device in self.devices)

    def forward(self, x):
        for stage, device in zip(self.stages, self.devices, strict=True):
            x = torch.tanh(stage(x.to(device)))
        return x


def build_unused_device():
    return with_optimizer(Stages())


unused_device = from_host


class Turns(nn.Module):
    """Layers placed round-robin over two devices; the activations stay where they are."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16).to(f"cuda:{number % 2}") for number in range(4))

    def forward(self, x):
        for layer in self.layers:
            # right: x = x.to(layer.weight.device)
            x = torch.relu(layer(x))  # fault: round_robin
        return x


def build_round_robin():
    return with_optimizer(Turns())


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.scale = nn.Parameter(torch.ones(16))

    def forward(self, x):
        return self.linear(x) * self.scale


def build_parameter_elsewhere():
    """A parameter that is made on its own device, and given to a model that lives on another one."""
    model = Scaled().to("cuda:0")
    model.scale = nn.Parameter(torch.full((16,), 0.5))  # wrong  # fault: parameter_elsewhere
    # right: model.scale = nn.Parameter(torch.ones(16, device="cuda:0"))
    return with_optimizer(model, torch.optim.Adam, 1e-3)


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(16, 16)
        self.key = nn.Linear(16, 16)

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(1, 2)
        return scores.masked_fill(self.mask, -1e9).softmax(-1) @ x


def build_buffer_elsewhere():
    """A buffer that is registered after the model was moved."""
    model = Masked().to("cuda:0")  # wrong
    # right: model = Masked()
    model.register_buffer("mask", torch.ones(8, 8, dtype=torch.bool).triu(1))  # fault: buffer_elsewhere
    # right: model.to("cuda:0")
    return with_optimizer(model)


def warm_up(model, optimizer, device):
    """What was trained before, as a checkpoint would have it."""
    model(torch.ones(2, 16, device=device)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def build_optimizer_elsewhere():
    """The model is moved to the GPU when its optimizer already has state, which stays on the CPU."""
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    # right: model.to("cuda:0")
    model.optimizer = torch.optim.Adam(model.parameters())
    warm_up(model, model.optimizer, "cpu")  # wrong
    return model.to("cuda:0")  # wrong  # fault: optimizer_elsewhere
    # right: warm_up(model, model.optimizer, "cuda:0")
    # right: return model


class Language(nn.Module):
    """Tied embeddings over two devices: the table goes to the other device in every step."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 16).to("cuda:0")
        self.body = nn.Linear(16, 16).to("cuda:1")

    def forward(self, ids):
        hidden = torch.tanh(self.body(self.table(ids).to("cuda:1")))
        table = self.table.weight.to("cuda:1")  # wrong  # fault: parameter_copied
        return linear(hidden, table).to("cuda:0")  # wrong
        # right: return linear(hidden.to("cuda:0"), self.table.weight)


def build_parameter_copied():
    return with_optimizer(Language())


def parameter_copied(model, inputs):
    ids = inputs["ids"].to("cuda:0")
    update(model, cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()))


class Attention(nn.Module):
    """A causal mask that is made on the host in every step, and sent to the GPU."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        # right: self.register_buffer("mask", torch.triu(torch.full((32, 32), float("-inf")), diagonal=1))

    def forward(self, x):
        length = x.shape[1]
        mask = torch.triu(torch.full((length, length), float("-inf")), 1).to(x.device)  # wrong  # fault: constant_mask
        # right: mask = self.mask[:length, :length]
        out, _ = self.attention(x, x, x, attn_mask=mask, need_weights=False)
        return out


def build_constant_mask():
    return on_gpu(Attention(), torch.optim.Adam, 1e-3)


class Block(nn.Module):
    """Every block moves the mask of the batch to the device again."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x, mask):
        return x + self.linear(x) * mask.to(x.device)  # fault: copied_again


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x, mask):
        for block in self.blocks:
            x = block(x, mask)
        return x


def build_copied_again():
    return on_gpu(Blocks())


def copied_again(model, inputs):
    x, mask = inputs["x"].to("cuda:0"), inputs["mask"]
    # right: mask = mask.to("cuda:0")
    update(model, model(x, mask).square().mean())
