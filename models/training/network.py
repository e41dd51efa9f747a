"""The default model's network: three segments, an exit after each.

    seg0: image [N,1,28,28] in 0..1 -> logits1 [N,10], z0 [N,8,7,7]
    seg1: z0                        -> logits2 [N,10], z1 [N,8,7,7]
    seg2: z1                        -> logits3 [N,10]

z0 and z1 come out of a ReLU6: whatever the input, they are within 0 to 6, which makes the scale of
their quantisation a constant.
"""

import torch
from torch import nn
from torch.nn import functional as F

MEAN, DEVIATION = 0.2860, 0.3530


class ConvNorm(nn.Sequential):
    """Convolution, batch norm and, unless told otherwise, ReLU."""

    def __init__(self, inputs, outputs, kernel=3, stride=1, relu=True):
        layers = [
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        super().__init__(*layers, *([nn.ReLU(inplace=True)] if relu else []))


class Residual(nn.Module):
    """Two convolutions beside an identity."""

    def __init__(self, channels):
        super().__init__()
        self.a = ConvNorm(channels, channels)
        self.b = ConvNorm(channels, channels, relu=False)

    def forward(self, x):
        return F.relu(x + self.b(self.a(x)))


class Head(nn.Module):
    """An exit: a convolution down to 7x7 and one linear layer."""

    def __init__(self, inputs, channels, stride):
        super().__init__()
        self.c = ConvNorm(inputs, channels, 3, stride)
        self.f = nn.Linear(channels * 49, 10)

    def forward(self, x):
        return self.f(torch.flatten(self.c(x), 1))


class Bottleneck(nn.Module):
    """What crosses to another site: few channels, 0 to 6."""

    def __init__(self, inputs, outputs, kernel, stride):
        super().__init__()
        self.c = ConvNorm(inputs, outputs, kernel, stride, relu=False)

    def forward(self, x):
        return F.relu6(self.c(x))


class Segment0(nn.Module):
    def __init__(self, width=16, crossing=8):
        super().__init__()
        self.stem = ConvNorm(1, width, 5, 2)
        self.head = Head(width, width, 2)
        self.bott = Bottleneck(width, crossing, 3, 2)

    def forward(self, x):
        features = self.stem((x - MEAN) / DEVIATION)
        return self.head(features), self.bott(features)


class Segment1(nn.Module):
    def __init__(self, crossing=8, width=64):
        super().__init__()
        self.inp = ConvNorm(crossing, width)
        self.r = Residual(width)
        self.head = Head(width, 32, 1)
        self.bott = Bottleneck(width, crossing, 1, 1)

    def forward(self, z):
        features = self.r(self.inp(z))
        return self.head(features), self.bott(features)


class Segment2(nn.Module):
    def __init__(self, crossing=8, width=96, blocks=3):
        super().__init__()
        self.inp = ConvNorm(crossing, width)
        self.r = nn.Sequential(*[Residual(width) for _ in range(blocks)])
        self.f = nn.Linear(width, 10)

    def forward(self, z):
        return self.f(self.r(self.inp(z)).mean((2, 3)))


class FakeQuantised(torch.autograd.Function):
    """Quantises 0..6 to a number of levels; gradients pass as if it did not."""

    @staticmethod
    def forward(_context, x, top):
        return torch.round(x * (top / 6.0)) * (6.0 / top)

    @staticmethod
    def backward(_context, gradient):
        return gradient, None


class Network(nn.Module):
    """All three segments; `bits` quantises z0 and z1 in training, 0 leaves one as it is."""

    def __init__(self):
        super().__init__()
        self.seg0, self.seg1, self.seg2 = Segment0(), Segment1(), Segment2()

    def forward(self, x, bits=(0, 0)):
        logits1, z0 = self.seg0(x)
        if bits[0]:
            z0 = FakeQuantised.apply(z0, float(2 ** bits[0] - 1))
        logits2, z1 = self.seg1(z0)
        if bits[1]:
            z1 = FakeQuantised.apply(z1, float(2 ** bits[1] - 1))
        return logits1, logits2, self.seg2(z1)
