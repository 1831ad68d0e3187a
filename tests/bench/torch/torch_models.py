# SPDX-License-Identifier: Apache-2.0
"""Networks of the measurements, from torch.nn alone. Runs in PyTorch's own environment."""
import torch
from torch import nn
from torch.nn import functional


class Residual(nn.Module):
    """Two convolutions with a way around them."""

    def __init__(self, inside, outside, stride):
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        self.around = nn.Identity()
        if stride != 1 or inside != outside:
            self.around = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        y = functional.relu(self.norm1(self.first(x)))
        return functional.relu(self.norm2(self.second(y)) + self.around(x))


def resnet18(classes=1000, small=False):
    """ResNet-18 as published: 11.7 million parameters; @small for pictures of 32 x 32: its first layer does not shrink them."""
    head = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()] if small else \
        [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    body, width = [], 64
    for stage in range(4):
        outside = 64 << stage
        for number in range(2):
            body.append(Residual(width, outside, 2 if stage and number == 0 else 1))
            width = outside
    return nn.Sequential(*head, *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.mix = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.mix(x).chunk(3, -1))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.feed(self.norm2(x))


class Transformer(nn.Module):
    """A decoder of words, as GPT-2 is one, small."""

    def __init__(self, words=4096, width=512, heads=8, layers=6, length=256):
        super().__init__()
        self.length = length
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(length, width)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)), nn.LayerNorm(width))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, x):
        y = self.words(x) + self.places(torch.arange(x.shape[1], device=x.device))
        return self.head(self.layers(y))

    @torch.no_grad()
    def generate(self, x, count):
        """The likeliest words, one after the other."""
        for _ in range(count):
            x = torch.cat([x, self(x[:, -self.length:])[:, -1].argmax(-1, keepdim=True)], 1)
        return x


def small_network():
    """For digits of 28 x 28: two convolutions and two layers."""
    return nn.Sequential(nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10))
