"""Well-known tutorials in PyTorch: DCGAN and sequence-to-sequence of pytorch.org, ports of keras.io's others."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


def dcgan_generator() -> nn.Module:
    """Return the generator of pytorch.org's DCGAN tutorial, with two stages fewer."""
    return nn.Sequential(
        nn.ConvTranspose2d(16, 32, 4, 1, 0, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(True),
        nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(True),
        nn.ConvTranspose2d(16, 3, 4, 2, 1, bias=False),
        nn.Tanh(),
    )


def dcgan_discriminator() -> nn.Module:
    """Return the discriminator of pytorch.org's DCGAN tutorial, with two stages fewer."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(16, 32, 4, 2, 1, bias=False),
        nn.BatchNorm2d(32),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(32, 1, 4, 1, 0, bias=False),
        nn.Sigmoid(),
    )


class VAE(nn.Module):
    """The convolutional variational autoencoder of keras.io, with the noise as an input."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 2, 1)
        self.conv2 = nn.Conv2d(8, 16, 3, 2, 1)
        self.dense = nn.Linear(16 * 49, 16)
        self.z_mean = nn.Linear(16, 2)
        self.z_log_var = nn.Linear(16, 2)
        self.project = nn.Linear(2, 16 * 49)
        self.up1 = nn.ConvTranspose2d(16, 16, 3, 2, 1, output_padding=1)
        self.up2 = nn.ConvTranspose2d(16, 8, 3, 2, 1, output_padding=1)
        self.out = nn.ConvTranspose2d(8, 1, 3, 1, 1)

    def forward(self, image, noise):
        x = F.relu(self.conv2(F.relu(self.conv1(image))))
        x = F.relu(self.dense(x.permute(0, 2, 3, 1).flatten(1)))
        mean, log_var = self.z_mean(x), self.z_log_var(x)
        z = mean + torch.exp(0.5 * log_var) * noise
        x = F.relu(self.project(z)).view(-1, 7, 7, 16).permute(0, 3, 1, 2)
        x = F.relu(self.up2(F.relu(self.up1(x))))
        return torch.sigmoid(self.out(x)), mean, log_var


def vae() -> nn.Module:
    return VAE()


class Siamese(nn.Module):
    """keras.io's Siamese network with a contrastive loss."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Sequential(
            nn.BatchNorm2d(1, eps=1e-3, momentum=0.01),
            nn.Conv2d(1, 4, 5),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Conv2d(4, 16, 5),
            nn.Tanh(),
            nn.AvgPool2d(2),
        )
        self.norm = nn.BatchNorm1d(256, eps=1e-3, momentum=0.01)
        self.dense = nn.Linear(256, 10)
        self.head_norm = nn.BatchNorm1d(1, eps=1e-3, momentum=0.01)
        self.head = nn.Linear(1, 1)

    def embed(self, x):
        x = self.tower(x).permute(0, 2, 3, 1).flatten(1)
        return torch.tanh(self.dense(self.norm(x)))

    def forward(self, left, right):
        squared = (self.embed(left) - self.embed(right)).square().sum(1, keepdim=True)
        distance = torch.sqrt(squared.clamp(min=1e-7))
        return torch.sigmoid(self.head(self.head_norm(distance)))


def siamese_contrastive() -> nn.Module:
    return Siamese()


class MiniGPT(nn.Module):
    """keras.io's miniature GPT: post-norm blocks of causal attention."""

    def __init__(self, words=61, length=9, dim=32, heads=2, inner=48) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(words, dim), nn.Embedding(length, dim)
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(dim, inner), nn.ReLU(), nn.Linear(inner, dim))
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, words)

    def forward(self, ids):
        length = ids.shape[1]
        x = self.tokens(ids) + self.positions(torch.arange(length))
        future = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
        x = self.norm1(x + self.attention(x, x, x, attn_mask=future, need_weights=False)[0])
        x = self.norm2(x + self.ffn(x))
        return self.head(x), x


def mini_gpt() -> nn.Module:
    return MiniGPT()


class Attention(nn.Module):
    """Bahdanau's attention, as in pytorch.org's sequence-to-sequence tutorial."""

    def __init__(self, dim) -> None:
        super().__init__()
        self.Wa, self.Ua, self.Va = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, 1)

    def forward(self, query, keys):
        scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys))).squeeze(2).unsqueeze(1)
        return torch.bmm(F.softmax(scores, dim=-1), keys)


class Translator(nn.Module):
    """pytorch.org's sequence-to-sequence model with attention, with teacher forcing."""

    def __init__(self, words=31, dim=16) -> None:
        super().__init__()
        self.encoder_embedding, self.decoder_embedding = nn.Embedding(words, dim), nn.Embedding(words, dim)
        self.encoder_gru = nn.GRU(dim, dim, batch_first=True)
        self.attention = Attention(dim)
        self.decoder_gru = nn.GRU(2 * dim, dim, batch_first=True)
        self.out = nn.Linear(dim, words)

    def forward(self, source, target_words):
        keys, hidden = self.encoder_gru(self.encoder_embedding(source))
        outputs = []
        for step in range(target_words.shape[1]):
            embedded = F.relu(self.decoder_embedding(target_words[:, step : step + 1]))
            context = self.attention(hidden.permute(1, 0, 2), keys)
            output, hidden = self.decoder_gru(torch.cat((embedded, context), dim=2), hidden)
            outputs.append(self.out(output))
        return F.log_softmax(torch.cat(outputs, dim=1), dim=-1)


def seq2seq_attention() -> nn.Module:
    return Translator()
