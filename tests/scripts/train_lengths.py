"""A tagger of sentences in PyTorch: packed sequences, padded to the longest of each batch."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader

WORDS, TAGS = 30, 4


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 8, padding_idx=0)
        self.lstm = nn.LSTM(8, 6, batch_first=True, bidirectional=True)
        self.out = nn.Linear(12, TAGS)

    def forward(self, words, lengths):
        packed = pack_padded_sequence(self.embedding(words), lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.out(states)


def collate(words):
    lengths = torch.tensor([len(each) for each in words])
    padded = pad_sequence(words, batch_first=True)
    return padded, padded % TAGS, lengths


sentences = [torch.randint(1, WORDS, (3 + number % 7,)) for number in range(24)]
model = Tagger()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss(ignore_index=0)
for words, tags, lengths in DataLoader(sentences, batch_size=6, shuffle=True, collate_fn=collate):
    optimizer.zero_grad()
    criterion(model(words, lengths).transpose(1, 2), tags).backward()
    optimizer.step()
