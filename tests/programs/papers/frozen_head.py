"""Transfer learning in which everything but the batch norms is frozen, the new head too.

https://discuss.pytorch.org/t/obtaining-abnormal-changes-in-loss-and-accuracy/84911
"""

import torch
from torch import nn
from torch.nn import functional


class Transferred(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, bias=False)  # fault
        self.bn = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 10)

    def forward(self, images):
        return self.head(torch.relu(self.bn(self.stem(images))).mean((2, 3)))


def build():
    model = Transferred()
    for name, parameter in model.named_parameters():
        if "bn" not in name:
            parameter.requires_grad = False
    for parameter in model.head.parameters():
        parameter.requires_grad = False
    return trained(model)


def build_right():
    return trained(Transferred())


def trained(model):
    model = model.cuda()
    model.optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
    return model


def step(model, inputs):
    model.optimizer.zero_grad()
    functional.cross_entropy(model(inputs["images"].cuda()), inputs["labels"].cuda()).backward()
    model.optimizer.step()
