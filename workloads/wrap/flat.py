"""The trainable parameters of a torch optimizer as flat vectors w, m and g, for algorithms to work on.

Parameters and momentum buffers become views of w and m; gradients are copied into g and become views of it. If the
program replaces one of them, as `load_state_dict` of an optimizer does, the next step copies the new values.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

import torch

_MOMENTUM: Mapping[type[torch.optim.Optimizer], str] = {
    torch.optim.SGD: "momentum_buffer",
    torch.optim.AdamW: "exp_avg",
}


class WrapError(ValueError):
    """`wrap` cannot work with this model, optimizer or checkpoint. The message is one line."""


class FlatParameters:
    """The flat vectors of an optimizer; see the module.

    Args:
        optimizer: SGD or AdamW.
        names: names of its parameters by id, for messages.

    Attributes:
        w, m, g: parameters, momentum buffer (zero without momentum), gradient, each of shape (numel,).
        shapes: shapes of the parameters.

    Raises:
        WrapError: no parameter is trainable, or parameters are not all float32 or all float64, on the CPU.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> None:
        self._optimizer = optimizer
        self._names = names
        self._momentum = next(key for kind, key in _MOMENTUM.items() if isinstance(optimizer, kind))
        self._parameters = self._trainable()
        self._check()
        self.shapes = tuple(tuple(parameter.shape) for parameter in self._parameters)
        with torch.no_grad():
            self.w = torch.cat([parameter.reshape(-1) for parameter in self._parameters])
        self.m, self.g = torch.zeros_like(self.w), torch.zeros_like(self.w)
        self._w, self._m, self._g = (self._views(vector) for vector in (self.w, self.m, self.g))
        self.follow()

    def follow(self) -> None:
        """Copy the values of parameters and momentum buffers that are not views, and make them views.

        Raises:
            WrapError: parameters were added, frozen or unfrozen, or their type changed.
        """
        now = self._trainable()
        if len(now) != len(self._parameters) or any(a is not b for a, b in zip(now, self._parameters, strict=True)):
            raise WrapError("the optimizer's trainable parameters changed after wrap; add and freeze them before")
        for parameter, w, m in zip(self._parameters, self._w, self._m, strict=True):
            if parameter.data_ptr() != w.data_ptr():
                if (parameter.dtype, parameter.device, parameter.shape) != (w.dtype, w.device, w.shape):
                    name = self._name(parameter)
                    raise WrapError(f"parameter {name}: type, shape or device changed after wrap; do that before")
                w.copy_(parameter.detach())
                parameter.data = w
            state = self._optimizer.state.get(parameter, {})
            buffer = state.get(self._momentum)
            if buffer is None:
                m.zero_()
            elif buffer.data_ptr() != m.data_ptr():
                m.copy_(buffer)
                state[self._momentum] = m

    def collect(self) -> torch.Tensor:
        """Fill g with the gradients, which become views of it, and return it; a missing gradient counts as zero.

        Raises:
            WrapError: a gradient is sparse.
        """
        for parameter, g in zip(self._parameters, self._g, strict=True):
            grad = parameter.grad
            if grad is None:
                g.zero_()
            elif grad.layout != torch.strided:
                name = self._name(parameter)
                raise WrapError(f"parameter {name} has a sparse gradient; expected a dense one, as with sparse=False")
            elif grad.data_ptr() != g.data_ptr():
                g.copy_(grad.detach())
            parameter.grad = g
        return self.g

    def _trainable(self) -> list[torch.Tensor]:
        groups = self._optimizer.param_groups
        return [parameter for group in groups for parameter in group["params"] if parameter.requires_grad]

    def _views(self, vector: torch.Tensor) -> list[torch.Tensor]:
        ends = list(accumulate(parameter.numel() for parameter in self._parameters))
        parts = vector.tensor_split(ends[:-1])
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def _check(self) -> None:
        if not self._parameters:
            raise WrapError("the optimizer has no trainable parameters")
        first = self._parameters[0]
        for parameter in self._parameters:
            name, dtype = self._name(parameter), str(parameter.dtype).removeprefix("torch.")
            if hasattr(parameter, "placements"):
                raise WrapError(f"parameter {name} is sharded (DTensor); wrap needs whole parameters on every rank")
            if parameter.dtype not in (torch.float32, torch.float64):
                raise WrapError(
                    f"parameter {name} is {dtype}; expected float32 or float64: keep parameters in full precision "
                    "and use torch.autocast for the compute"
                )
            if parameter.dtype != first.dtype:
                raise WrapError(f"parameter {name} is {dtype}, {self._name(first)} is not; expected equal types")
            if parameter.device.type != "cpu":
                raise WrapError(f"parameter {name} is on '{parameter.device}'; wrap supports the CPU only")

    def _name(self, parameter: torch.Tensor) -> str:
        return repr(self._names.get(id(parameter), "without a name"))
