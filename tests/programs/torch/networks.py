"""Models that are wrong in themselves: parts that do not learn, wrong modes, values that are not finite."""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from tests.programs.torch.usual import mlp, on_gpu, train, update, with_optimizer
from tests.programs.torch.usual import step as step


class Hidden(nn.Module):
    """Blocks in a plain Python list: never moved, never trained."""

    def __init__(self):
        super().__init__()
        self.blocks = [nn.Linear(16, 16) for _ in range(3)]  # wrong  # fault: hidden_list
        # right: self.blocks = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        for block in self.blocks:
            x = torch.relu(block(x))
        return self.head(x)


def build_hidden_list():
    return on_gpu(Hidden())


class AutoEncoder(nn.Module):
    """A detach between encoder and decoder, left from an experiment: the encoder never learns."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(16, 4)
        self.decoder = nn.Linear(4, 16)

    def forward(self, x):
        code = torch.tanh(self.encoder(x))
        return self.decoder(code.detach())  # wrong  # fault: detached_encoder
        # right: return self.decoder(code)


def build_detached_encoder():
    return on_gpu(AutoEncoder())


def detached_encoder(model, inputs):
    x = inputs["x"].to("cuda:0")
    update(model, mse_loss(model(x), x))


class Tuned(nn.Module):
    """The features are computed under no_grad, though they shall be trained too."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(16, 8), nn.Tanh())
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        with torch.no_grad():  # wrong
            hidden = self.features(x)  # wrong  # fault: no_grad_features
        # right: hidden = self.features(x)
        return self.head(hidden)


def build_no_grad_features():
    return on_gpu(Tuned())


class Clipped(nn.Module):
    """An activation goes through NumPy: autograd does not see it come back."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(16, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        hidden = self.body(x)
        hidden = torch.from_numpy(np.clip(hidden.detach().numpy(), -1, 1))  # wrong  # fault: through_numpy
        # right: hidden = hidden.clamp(-1, 1)
        return self.head(hidden)


def build_through_numpy():
    return with_optimizer(Clipped())


def through_numpy(model, inputs):
    train(model, inputs["x"])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(16, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        hidden = torch.relu(self.body(x.to(self.body.weight.dtype)))
        return self.head(hidden.to(self.head.weight.dtype))


def build_frozen_body():
    """A body that is frozen: on purpose, perhaps."""
    model = Net().to("cuda:0")
    model.body.requires_grad_(False)  # wrong
    model.optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)  # wrong
    # right: model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def build_head_not_optimized():
    """The head was added after the optimizer was made, which does not hold it."""
    model = Net().to("cuda:0")
    model.head = None  # wrong
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # fault: head_not_optimized
    model.head = nn.Linear(8, 4).to("cuda:0")  # wrong
    return model


def build_mixed_parameters():
    """Half of the model in bfloat16 by hand; the casts between hide it."""
    model = Net()
    model.body.bfloat16()  # wrong  # fault: mixed_parameters
    return on_gpu(model)


class Prior(nn.Module):
    """A parameter that comes from NumPy, and is float64 as NumPy's numbers are."""

    def __init__(self, prior):
        super().__init__()
        self.hidden = nn.Linear(16, 8)
        self.prior = nn.Parameter(prior)  # fault: double_parameter
        self.out = nn.Linear(8, 4)

    def forward(self, x):
        return self.out(self.hidden(x) + self.prior)


def build_double_parameter():
    prior = torch.from_numpy(np.linspace(-1, 1, 8))  # wrong
    # right: prior = torch.from_numpy(np.linspace(-1, 1, 8, dtype=np.float32))
    return on_gpu(Prior(prior))


def build_dead_relu():
    """A bias that was set so low that no ReLU ever fires: every gradient below it is zero."""
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))
    nn.init.constant_(model[0].bias, -100.0)  # wrong
    # right: nn.init.constant_(model[0].bias, 0.1)
    return on_gpu(model)


def dead_relu(model, inputs):
    update(model, model(inputs["x"].to("cuda:0")).sub(1).square().mean())


class Rates(nn.Module):
    """A logarithm of what a ReLU made: of zeros."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(16, 8)

    def forward(self, x):
        return torch.log(torch.relu(self.out(x)))  # wrong  # fault: log_of_zero
        # right: return torch.log(torch.relu(self.out(x)) + 1e-3)


def build_log_of_zero():
    return on_gpu(Rates(), rate=1e-4)


def of_mean(model, inputs):
    update(model, model(inputs["x"].to("cuda:0")).mean())


log_of_zero = of_mean


class Distance(nn.Module):
    """The distance of a point to itself: its value is finite, its derivative is not."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(16, 8, bias=False)

    def forward(self, x):
        points = self.out(x)
        squares = (points - points[:1]).square().sum(-1)
        return torch.sqrt(squares)  # wrong  # fault: sqrt_at_zero
        # right: return torch.sqrt(squares + 1e-6)


def build_sqrt_at_zero():
    return on_gpu(Distance(), rate=0.01)


sqrt_at_zero = of_mean


class Images(nn.Module):
    """A linear layer that was made for another image size."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.out = nn.Linear(4 * 8 * 8, 3)  # wrong
        # right: self.out = nn.Linear(4 * 6 * 6, 3)

    def forward(self, x):
        hidden = torch.relu(self.conv(x)).flatten(1)
        return self.out(hidden)  # fault: wrong_features


def build_wrong_features():
    return on_gpu(Images())


class Block(nn.Module):
    """A residual block that adds in place: after the ReLU it breaks autograd, after the convolution it does not."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(4, 4, 3, padding=1)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        out = torch.relu(self.conv2(torch.relu(self.conv1(x))))  # wrong
        # right: out = self.conv2(torch.relu(self.conv1(x)))
        out += x  # fault: residual_in_place
        return out  # wrong
        # right: return torch.relu(out)


def build_residual_in_place():
    return on_gpu(nn.Sequential(Block(), nn.Flatten(), nn.Linear(4 * 8 * 8, 3)))


def with_dropout():
    return nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))


def build_left_in_eval():
    """The model is left in eval mode after a validation, and trained on."""
    model = on_gpu(with_dropout())
    model.eval()  # wrong
    return model


def build_validated_in_train():
    return with_dropout().to("cuda:0")


def validated_in_train(model, inputs):
    """A validation that forgets eval(): dropout drops, and batch norm learns from the validation data."""
    # right: model.eval()
    with torch.no_grad():
        out = model(inputs["x"].to("cuda:0"))  # fault: validated_in_train
        mse_loss(out, inputs["y"].to("cuda:0"))


def build_stays_in_eval():
    return on_gpu(nn.Sequential(mlp(), nn.Dropout(0.1)), torch.optim.Adam, 1e-3)


def stays_in_eval(model, inputs):
    """Validation at the end of each epoch, after which nobody turns training mode on again."""
    # right: model.train()
    x, y = inputs["x"].cuda(), inputs["y"].cuda()
    model.optimizer.zero_grad()
    cross_entropy(model(x), y).backward()  # fault: stays_in_eval
    model.optimizer.step()
    model.eval()
    with torch.no_grad():
        model(x)


class Normed(nn.Module):
    """A batch norm in a program whose batches have one sample."""

    def __init__(self):
        super().__init__()
        self.body, self.out = nn.Linear(16, 32), nn.Linear(32, 4)
        self.norm = nn.BatchNorm1d(32)  # wrong  # fault: batch_of_one
        # right: self.norm = nn.GroupNorm(1, 32)

    def forward(self, x):
        return self.out(self.norm(self.body(x)).relu())


def build_batch_of_one():
    return on_gpu(Normed())


class Headless(nn.Module):
    """A layer that is made where it is called: it has new weights in each step, which nothing trains."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(16, 32)
        # right: self.head = nn.Linear(32, 4)

    def forward(self, x):
        hidden = self.body(x).relu()
        head = nn.Linear(32, 4, device=x.device)  # wrong  # fault: layer_in_forward
        return head(hidden)  # wrong
        # right: return self.head(hidden)


def build_layer_in_forward():
    return on_gpu(Headless(), torch.optim.Adam, 1e-3)


def layer_in_forward(model, inputs):
    update(model, cross_entropy(model(inputs["x"].to("cuda")), inputs["y"].to("cuda")))


class Gate(nn.Module):
    """A gate whose weight is a new parameter in each call."""

    def __init__(self, width):
        super().__init__()
        self.width = width
        # right: self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        self.weight = nn.Parameter(torch.ones(self.width, device=x.device))  # wrong  # fault: weight_in_forward
        return x * torch.sigmoid(self.weight)


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.gate, self.out = nn.Linear(16, 8), Gate(8), nn.Linear(8, 4)

    def forward(self, x):
        return self.out(self.gate(self.body(x)))


def build_weight_in_forward():
    return on_gpu(Gated())


class Sentences(nn.Module):
    """Batches first, given to a transformer that takes the first axis for the sequence."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32)  # wrong
        # right: self.encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.out = nn.Linear(16, 3)

    def forward(self, ids):
        hidden = self.encoder(self.table(ids))  # fault: sequence_first
        return self.out(hidden.mean(1))


def build_sequence_first():
    return on_gpu(Sentences(), torch.optim.Adam, 1e-3)


def sequence_first(model, inputs):
    update(model, cross_entropy(model(inputs["ids"].to("cuda:0")), inputs["y"].to("cuda:0")))
