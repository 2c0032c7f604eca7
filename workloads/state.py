"""Checkpoints: an object names the attributes that it needs to continue."""

from collections import deque
from collections.abc import Mapping
from random import Random
from typing import Any, ClassVar


class StateError(ValueError):
    """An attribute cannot be saved, or is missing from the checkpoint. The message is one line."""


class Stateful:
    """An object that can continue where another of its kind has stopped.

    Attributes:
        state: names of the attributes to save. They can be numbers, text, tensors, random generators, other objects of
            this kind, and lists and dicts of these. `load_state_dict` writes to existing tensors in place if their
            shapes match, so views stay views.
    """

    state: ClassVar[tuple[str, ...]] = ()

    def state_dict(self) -> dict[str, Any]:
        """Return the named attributes as plain data and tensors. Raises: StateError."""
        return {name: _saved(getattr(self, name), name) for name in self.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the `state_dict` of an object with the same parameters. Raises: StateError."""
        for name in self.state:
            if name not in state:
                raise StateError(f"the checkpoint has no {name}")
            setattr(self, name, _restored(getattr(self, name), state[name]))


def _saved(value: Any, where: str) -> Any:
    import torch  # late: planning does not need it

    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Stateful):
        return value.state_dict()
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, Random):
        return value.getstate()
    if isinstance(value, list | tuple | deque):
        return [_saved(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: _saved(item, f"{where}[{key!r}]") for key, item in value.items()}
    raise StateError(
        f"{where} is a {type(value).__name__}, which a checkpoint cannot hold; expected numbers, text, tensors, "
        "random generators, or lists and dicts of these, or an own state_dict and load_state_dict"
    )


def _restored(target: Any, saved: Any) -> Any:
    """Return the replacement of `target`: itself with the contents of `saved`, or a copy of those."""
    import torch

    if isinstance(target, Stateful):
        target.load_state_dict(saved)
        return target
    if isinstance(target, torch.Generator):
        return target.set_state(saved)
    if isinstance(target, Random):
        target.setstate(saved)
        return target
    if isinstance(saved, torch.Tensor):
        alike = isinstance(target, torch.Tensor) and (target.shape, target.dtype) == (saved.shape, saved.dtype)
        return target.copy_(saved) if alike else saved.clone()
    if isinstance(saved, dict):
        return {key: _restored((target or {}).get(key), item) for key, item in saved.items()}
    if isinstance(saved, list):
        olds = [*(target or ()), *[None] * len(saved)]
        items = [_restored(old, item) for old, item in zip(olds, saved, strict=False)]
        return type(target)(items) if isinstance(target, tuple | deque) else items
    return saved
