"""A recurrent network that reads an image of MNIST row by row, and then says what it was (GRU, Cho et al. 2014)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanbench.workloads.data.mnist import CLASSES, SIDE
from wanbench.workloads.models.tensors import ParameterTensor

if TYPE_CHECKING:
    import torch

_HIDDEN = 32
_GATES = 3 * _HIDDEN


def tensors() -> tuple[ParameterTensor, ...]:
    """Its 6 parameter tensors (6282 elements), with the multiply-adds of their layers' backward pass per sample."""
    return (
        ParameterTensor("gru.weight_ih_l0", (_GATES, SIDE), float(SIDE * _GATES * SIDE)),
        ParameterTensor("gru.weight_hh_l0", (_GATES, _HIDDEN), float(2 * SIDE * _GATES * _HIDDEN)),
        ParameterTensor("gru.bias_ih_l0", (_GATES,), 0.0),
        ParameterTensor("gru.bias_hh_l0", (_GATES,), 0.0),
        ParameterTensor("head.weight", (CLASSES, _HIDDEN), float(2 * CLASSES * _HIDDEN)),
        ParameterTensor("head.bias", (CLASSES,), 0.0),
    )


def module_of(generator: torch.Generator) -> torch.nn.Module:
    """The network: images of shape (batch, 1, 28, 28) to scores of shape (batch, 10), from its last state."""
    from torch import nn

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = nn.GRU(SIDE, _HIDDEN, batch_first=True)
            self.head = nn.Linear(_HIDDEN, CLASSES)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            states, _ = self.gru(images.squeeze(1))
            return self.head(states[:, -1])  # type: ignore[no-any-return]

    module = Recurrent()
    for parameter in module.parameters():  # as PyTorch does, but from this generator
        nn.init.uniform_(parameter, -(_HIDDEN**-0.5), _HIDDEN**-0.5, generator=generator)
    return module
