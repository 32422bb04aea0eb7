"""A frozen teacher beside the model that is trained, which its loss asks."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

teacher = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.25), nn.Linear(8, 3)).eval()
student = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3))
hard, kl = nn.CrossEntropyLoss(), nn.KLDivLoss(reduction="batchmean")
optimizer = torch.optim.SGD(student.parameters(), lr=0.05)
for x, y in DataLoader(TensorDataset(torch.randn(64, 6), torch.randint(0, 3, (64,))), batch_size=16, shuffle=True):
    with torch.no_grad():
        wanted = teacher(x)
    logits = student(x)
    soft = kl(torch.log_softmax(logits / 3, dim=1), torch.softmax(wanted / 3, dim=1))
    loss = 0.25 * hard(logits, y) + 0.75 * soft
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
