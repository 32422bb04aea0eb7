"""Batches of a wrong dtype, on a wrong device, or sent there in a wrong way."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tests.programs.torch.usual import build as build
from tests.programs.torch.usual import mlp, on_gpu, train, update, with_optimizer


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(16, 32)
        self.out = nn.Linear(32, 4)

    def forward(self, x):
        return self.out(torch.relu(self.hidden(x)))


def build_cpu_batch():
    return on_gpu(Classifier(), torch.optim.Adam, 1e-3)


def classify(model, x, y):
    logits = model(x)  # fault: cpu_batch
    update(model, cross_entropy(logits, y))


def cpu_batch(model, inputs):
    """A batch of the data loader's, on the CPU, fed to a model on the GPU."""
    classify(model, inputs["x"], inputs["y"])  # wrong
    # right: classify(model, inputs["x"].cuda(), inputs["y"].cuda())


def build_batch_on_other_gpu():
    return with_optimizer(mlp().to("cuda:1"))


def to_model(model, x):
    loss = model(x).square().mean()  # fault: batch_on_other_gpu
    update(model, loss)


def batch_on_other_gpu(model, inputs):
    """The batch goes to the default GPU; the model was put on another one."""
    to_model(model, inputs["x"].cuda())  # wrong
    # right: to_model(model, inputs["x"].to("cuda:1"))


def build_integer_images():
    return on_gpu(nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 16), nn.ReLU(), nn.Linear(16, 4)))


def of_images(model, images):
    loss = model(images).square().mean()  # fault: integer_images
    update(model, loss)


def integer_images(model, inputs):
    """Images as bytes, given to a layer of floats."""
    of_images(model, inputs["images"].to("cuda:0"))  # wrong
    # right: of_images(model, inputs["images"].to("cuda:0").float() / 255)


def double_input(model, inputs):
    """A batch that was made float64 on its way to a float32 model."""
    x = inputs["x"].double()  # wrong  # fault: double_input
    # right: x = inputs["x"]
    train(model, x.to("cuda:0"))


class Encoder(nn.Module):
    def __init__(self, words=1000):
        super().__init__()
        self.table = nn.Embedding(words, 16)
        self.out = nn.Linear(16, 4)

    def forward(self, src):
        hidden = self.table(src)  # fault: ids_range
        return self.out(hidden).mean(1)


def encoder():
    return on_gpu(Encoder(), torch.optim.Adam, 1e-3)


build_double_ids = encoder


def double_ids(model, inputs):
    """Ids of words that are made doubles before the embedding looks them up."""
    src = inputs["src"].double()  # wrong  # fault: double_ids
    # right: src = inputs["src"]
    train(model, src.to("cuda:0"))


build_float_ids = encoder


def float_ids(model, inputs):
    """Ids of words that are made floats before the embedding looks them up."""
    src = inputs["src"].float()  # wrong  # fault: float_ids
    # right: src = inputs["src"]
    train(model, src.to("cuda:0"))


def build_ids_range(words=100):
    """A vocabulary of 100 words, and ids up to 127."""
    return on_gpu(Encoder(words), torch.optim.Adam, 1e-3)


def build_ids_range_right():
    return build_ids_range(words=128)


def ids_range(model, inputs):
    train(model, inputs["ids"].to("cuda:0"))


def train_on(model, images, labels):
    update(model, cross_entropy(model(images), labels.to("cuda:0")))


def build_not_contiguous():
    layers = [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 30 * 30, 4)]
    return on_gpu(nn.Sequential(*layers), rate=0.01)


def not_contiguous(model, inputs):
    """Images whose axes are swapped on the host, and which go to the GPU in pieces."""
    images = inputs["images"].permute(0, 3, 1, 2)  # wrong
    train_on(model, images.to("cuda:0"), inputs["labels"])  # wrong  # fault: not_contiguous
    # right: images = inputs["images"].to("cuda:0").permute(0, 3, 1, 2)
    # right: train_on(model, images, inputs["labels"])


def build_not_pinned():
    return on_gpu(nn.Sequential(nn.Linear(1024, 32), nn.ReLU(), nn.Linear(32, 4)), rate=0.01)


def not_pinned(model, inputs):
    """A large batch that goes to the GPU from pageable memory."""
    x = inputs["x"].to("cuda:0", non_blocking=True)  # wrong  # fault: not_pinned
    # right: x = inputs["x"].pin_memory().to("cuda:0", non_blocking=True)
    train(model, x)


WEIGHTS = [1.0, 2.0, 0.5, 1.5]


def build_constant_weights():
    model = on_gpu(nn.Linear(16, 4))
    model.weights = torch.tensor(WEIGHTS, device="cuda:0")
    return model


def constant_weights(model, inputs):
    """The class weights of the loss are a list, made a tensor on the GPU in every step."""
    weights = torch.tensor(WEIGHTS, device="cuda:0")  # wrong  # fault: constant_weights
    # right: weights = model.weights
    logits = model(inputs["x"].to("cuda:0"))
    update(model, cross_entropy(logits, inputs["y"].to("cuda:0"), weight=weights))
