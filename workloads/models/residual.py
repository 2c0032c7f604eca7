"""Residual networks as modules, written from He et al., "Deep Residual Learning for Image Recognition" (CVPR 2016).

The names and order of their parameters are those of the tables in `resnet`.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn
from torch.nn.functional import avg_pool2d, max_pool2d, pad

_GROUPS = 4
_NORMS: Mapping[str, Callable[[int], nn.Module]] = {
    "batch": nn.BatchNorm2d,
    "group": lambda width: nn.GroupNorm(_GROUPS, width),
    "none": lambda width: nn.Identity(),
}


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut without parameters (section 3.3, option A).

    If the block halves the image, the shortcut takes every second pixel and fills the new channels with zeros.
    """

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, norm: str) -> None:
        """Build the block; `inputs` and `width` are its channels before and after; `norm` as in `ResNet`."""
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=norm == "none")
        self.bn1 = _NORMS[norm](width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=norm == "none")
        self.bn2 = _NORMS[norm](width)
        self._stride, self._added = stride, width - inputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, inputs, side, side) to (batch, width, side / stride, side / stride)."""
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        shortcut = x[:, :, :: self._stride, :: self._stride]
        if self._added:
            shortcut = pad(shortcut, (0, 0, 0, 0, 0, self._added))
        return (y + shortcut).relu()  # type: ignore[no-any-return]


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut, which is projected if shapes differ (option B).

    The stride is in the 3x3 convolution, as PyTorch users train it ("v1.5").
    """

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, norm: str) -> None:
        """Build the block; `inputs`: channels before; `width`: of the 3x3 convolution, a quarter of those after."""
        super().__init__()
        outputs = self.expansion * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, inputs, side, side) to (batch, 4 width, side / stride, side / stride)."""
        y = self.bn1(self.conv1(x)).relu()
        y = self.bn2(self.conv2(y)).relu()
        y = self.bn3(self.conv3(y))
        return (y + (x if self.downsample is None else self.downsample(x))).relu()  # type: ignore[no-any-return]


class ResNet(nn.Module):
    """A stem, stages of blocks (each but the first halves the image), average pooling and a classifier."""

    def __init__(
        self,
        block: type[BasicBlock | Bottleneck],
        stages: Sequence[tuple[int, int]],
        classes: int,
        generator: torch.Generator,
        *,
        stem: int = 3,
        channels: int = 3,
        stride: int = 1,
        norm: str = "batch",
    ) -> None:
        """Build and initialise it.

        Args:
            stages: widths and numbers of blocks. stem: side of its kernel; with 7, pooling halves the image behind it.
            channels: of the images. stride: of the stem. norm: behind each convolution, "batch", "group" or "none".
        """
        super().__init__()
        inputs, self._halves = stages[0][0], stem == 7
        self.conv1 = nn.Conv2d(channels, inputs, stem, stride, stem // 2, bias=norm == "none")
        self.bn1 = _NORMS[norm](inputs)
        self._stages = len(stages)
        for stage, (width, count) in enumerate(stages, start=1):
            blocks = []
            for number in range(count):
                blocks.append(block(inputs, width, 2 if stage > 1 and number == 0 else 1, norm))
                inputs = width * block.expansion
            self.add_module(f"layer{stage}", nn.Sequential(*blocks))
        self.fc = nn.Linear(inputs, classes)
        _initialise(self, generator)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, channels, height, width) to (batch, classes); the sides can have any sufficient size."""
        x = self.bn1(self.conv1(x)).relu()
        x = max_pool2d(x, 3, 2, 1) if self._halves else x
        for stage in range(1, self._stages + 1):
            x = self.get_submodule(f"layer{stage}")(x)
        return self.fc(avg_pool2d(x, x.shape[2:]).flatten(1))  # type: ignore[no-any-return]


def _initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Initialise convolutions as He et al. 2015 (normal, fan out), batch norm as identity, the classifier small."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu", generator=generator)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, 0.0, 0.01, generator=generator)
            nn.init.zeros_(part.bias)
