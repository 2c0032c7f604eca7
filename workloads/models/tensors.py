"""Descriptions of models that do not have to be built. Imports no torch."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ParameterTensor:
    """One parameter tensor of a model, in registration order.

    Attributes:
        name: as in `named_parameters()`.
        shape: its dimensions.
        backward_work: its share of the backward pass, in any unit common to the model (FLOPs, if known).
    """

    name: str
    shape: tuple[int, ...]
    backward_work: float

    @property
    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)
