"""A training script as people write them: arguments, a loader that shuffles, evaluation, a learning rate that falls."""

import argparse

import torch
from data import CLASSES, SIZE
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.hidden, self.dropout = nn.Linear(4 * (SIZE - 2) ** 2, 16), nn.Dropout(0.2)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x))).permute(0, 2, 3, 1).flatten(1)
        return self.head(self.dropout(torch.relu(self.hidden(x))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--smoothing", type=float, default=0.0)
    args = parser.parse_args()
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(48, 3, SIZE, SIZE), torch.randint(0, CLASSES, (48,)))
    loader = DataLoader(data, batch_size=24, shuffle=True)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    criterion = nn.CrossEntropyLoss(label_smoothing=args.smoothing)
    for epoch in range(2):
        model.train()
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            correct = sum(int((model(images).argmax(1) == labels).sum()) for images, labels in loader)
        print(f"epoch {epoch}: {correct} of {len(data)}")
        scheduler.step()
    return model


if __name__ == "__main__":
    main()
