"""The trainable parameters of a torch optimizer as flat vectors w, m and g, for algorithms to work on.

Parameters and momentum buffers become views of w and m. A program can give them other memory at any time, as
`p.data = ...`, a conversion of the model, and `load_state_dict` of an optimizer do. So before and after each step, what
the optimizer uses is compared with the views; what differs is copied in, and becomes a view again. Of gradients nothing
is kept: each step copies what the optimizer would use into a new vector g, whose parts take its place.

Of a sharded parameter (DTensor), this is about the shard of this rank. Its memory belongs to FSDP, so nothing becomes a
view: values are copied in and, by `write`, back.
"""

import inspect
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, cast

import torch

_MOMENTUM: Mapping[type[torch.optim.Optimizer], str] = {
    torch.optim.SGD: "momentum_buffer",
    torch.optim.Adam: "exp_avg",  # and AdamW, whose step is Adam's
}
AGAIN = "do that before wrap, or drain first and wrap a new optimizer"


class WrapError(ValueError):
    """`wrap` cannot work with this model, optimizer or checkpoint. The message is one line."""


def momentum_of(optimizer: torch.optim.Optimizer) -> str | None:
    """The key of the momentum buffer in an optimizer's state, or None.

    It is known if the step is that of `torch.optim.SGD`, `Adam` or `AdamW`: a subclass with a step of its own can keep
    anything there.
    """
    step = inspect.unwrap(type(optimizer).step)
    return next((key for kind, key in _MOMENTUM.items() if step is inspect.unwrap(kind.step)), None)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The values of a tensor on this rank: of a DTensor its shard. They share its memory."""
    tensor = tensor.detach()
    return cast(torch.Tensor, tensor.to_local()) if hasattr(tensor, "to_local") else tensor


class FlatParameters:
    """The flat vectors of an optimizer; see the module.

    Args:
        optimizer: any of torch's, or the user's own.
        names: names of its parameters by id, for messages.

    Attributes:
        w, m: parameters and momentum buffer, each of shape (numel,). m is zero if `momentum_of` knows no buffer.
        shapes: shapes of the parameters.

    Raises:
        WrapError: no parameter is trainable, or parameters are not all float32 or all float64, on the CPU.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> None:
        self._optimizer = optimizer
        self._names = names
        self._momentum = momentum_of(optimizer)
        self._parameters = self._trainable()
        self._check()
        self._sharded = any(hasattr(parameter, "to_local") for parameter in self._parameters)
        self.shapes = tuple(tuple(local(parameter).shape) for parameter in self._parameters)
        self.w = torch.cat([local(parameter).reshape(-1) for parameter in self._parameters])
        self.m = torch.zeros_like(self.w)
        self._w, self._m = self._views(self.w), self._views(self.m)
        self.follow()

    def follow(self) -> None:
        """Copy the values of parameters and momentum buffers that are not views, and make them views.

        Raises:
            WrapError: names the parameter that was added, frozen or unfrozen, or whose type, shape or device changed.
        """
        self._check_unchanged()
        if self._copied(self.w, self._w, [parameter.data for parameter in self._parameters], "value"):
            for parameter, w in zip(self._parameters, self._w, strict=True):
                parameter.data = w
        if self._momentum is None:
            return
        states = self._states()
        momenta = [state.get(self._momentum) for state in states]
        if self._copied(self.m, self._m, momenta, self._momentum):
            for state, m in zip(states, self._m, strict=True):
                if state.get(self._momentum) is not None:
                    state[self._momentum] = m.detach()  # another tensor: its `data` can be replaced, that of m cannot

    def write(self, g: torch.Tensor | None = None) -> None:
        """Copy w, m and gradients `g`, shape (numel,), to sharded parameters; others have views of them."""
        if not self._sharded:
            return
        pairs: list[tuple[Any, torch.Tensor]] = [*zip(self._parameters, self._w, strict=True)]
        momenta = (state.get(self._momentum) for state in self._states())
        pairs += [(momentum, m) for momentum, m in zip(momenta, self._m, strict=True) if momentum is not None]
        if g is not None:
            pairs += zip((parameter.grad for parameter in self._parameters), self._views(g), strict=True)
        for tensor, values in pairs:
            local(tensor).copy_(values)

    def remember(self) -> None:
        """Keep the present values of w and m, for `check_same`."""
        self._kept = self.w.clone(), self.m.clone()

    def check_same(self) -> None:
        """Raises: WrapError: names the parameter whose values, or those of its momentum, are not those remembered."""
        for vector, kept, what in zip((self.w, self.m), self._kept, ("value", self._momentum), strict=True):
            for parameter, now, before in zip(self._parameters, self._views(vector), self._views(kept), strict=True):
                if not torch.equal(_bits(now), _bits(before)):
                    changed = f"parameter {self._name(parameter)}: its {what} was changed since the last step"
                    raise WrapError(f"{changed}, while averages are in flight; call drain() first, on all ranks")

    def collect(self) -> torch.Tensor:
        """Return a new vector of the gradients, whose parts become the gradients; a missing one counts as zero.

        Raises:
            WrapError: a gradient is sparse or has another shape, or a frozen parameter has one.
        """
        for parameter in self._all():
            if parameter.grad is not None and not parameter.requires_grad:
                used = f"parameter {self._name(parameter)} is frozen, but the optimizer would use its gradient"
                raise WrapError(f"{used}, of this rank alone; set its grad to None")
        g = self._joined([parameter.grad for parameter in self._parameters], "gradient")
        for parameter, part in zip(self._parameters, self._views(g), strict=True):
            if not self._sharded:
                parameter.grad = part
            elif parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        return g

    def _states(self) -> list[dict[Any, Any]]:
        return [self._optimizer.state.get(parameter, {}) for parameter in self._parameters]

    def _copied(
        self, vector: torch.Tensor, views: Sequence[torch.Tensor], values: Sequence[torch.Tensor | None], what: str
    ) -> bool:
        """Fill a vector, unless all values are its views already; return whether they must become views."""
        pairs = () if self._sharded else zip(values, views, strict=True)
        if pairs and all(
            value is not None and value.dtype == view.dtype and value.is_set_to(view) for value, view in pairs
        ):
            return False
        vector.copy_(self._joined(values, what))  # through other memory: two views can have been exchanged
        return not self._sharded

    def _joined(self, values: Sequence[torch.Tensor | None], what: str) -> torch.Tensor:
        """Return a new vector of a value for each parameter, in the type of w; None counts as zero."""
        parts = []
        for parameter, value, view in zip(self._parameters, values, self._w, strict=True):
            part = torch.zeros_like(view) if value is None else local(value)
            name = f"parameter {self._name(parameter)}"
            if part.layout != torch.strided:
                raise WrapError(f"{name} has a sparse {what}; expected a dense one, as with sparse=False")
            if part.shape != view.shape:
                raise WrapError(f"{name} has a {what} of shape {tuple(part.shape)}; expected {tuple(view.shape)}")
            parts.append(part.to(view).reshape(-1))
        return torch.cat(parts)

    def _all(self) -> list[torch.Tensor]:
        return [parameter for group in self._optimizer.param_groups for parameter in group["params"]]

    def _trainable(self) -> list[torch.Tensor]:
        return [parameter for parameter in self._all() if parameter.requires_grad]

    def _views(self, vector: torch.Tensor) -> list[torch.Tensor]:
        parts = torch.split(vector, [prod(shape) for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def _check_unchanged(self) -> None:
        before, now = (
            {id(parameter): parameter for parameter in parameters}
            for parameters in (self._parameters, self._trainable())
        )
        for key, parameter in {**before, **now}.items():
            if key not in before or key not in now:
                what = "frozen or removed from" if key in before else "unfrozen or added to"
                name = self._name(parameter)
                raise WrapError(f"parameter {name} was {what} the optimizer after wrap; {AGAIN}")
        for parameter, values, w in zip(self._parameters, map(local, self._parameters), self._w, strict=True):
            if (values.dtype, values.device, values.shape) != (w.dtype, w.device, w.shape):
                kinds = (f"{t.dtype}, {tuple(t.shape)} on {t.device}".removeprefix("torch.") for t in (w, values))
                name = self._name(parameter)
                raise WrapError(f"parameter {name} was converted after wrap, from {' to '.join(kinds)}; {AGAIN}")

    def _check(self) -> None:
        if not self._parameters:
            raise WrapError("the optimizer has no trainable parameters")
        first = self._parameters[0]
        for parameter in self._parameters:
            name, dtype = self._name(parameter), str(parameter.dtype).removeprefix("torch.")
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


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor, so that NaN equals NaN."""
    return tensor.view(-1).view(torch.int32)
