"""What an algorithm knows between two steps, as plain data and tensors: the default of `Algorithm.state_dict`.

It is found by looking: below the algorithm's attributes stand numbers, text, tensors, random generators, and lists,
tables and objects of these. Parameters, the replica and what belongs to it (w, m, comm, optimizer) are not part of it,
and neither are functions, slices, frozen dataclasses, and attributes called `_spare`: vectors that only wait for their
next use.

`restore` writes into what `start` has made, in place, so that views stay views.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, cast

import torch

from wanbench.workloads.algorithms.base import Algorithm, AlgorithmError

_SCRATCH = "_spare"
_CLASS = "__class__"


def snapshot(algorithm: Algorithm) -> dict[str, Any]:
    """The state of an algorithm that has finished.

    Raises:
        AlgorithmError: something is under way, or an attribute holds what is none of the above.
    """
    walk = _Walk(algorithm)
    return {name: walk.take(value, name) for name, value in walk.attributes().items()}


def restore(algorithm: Algorithm, state: Mapping[str, Any]) -> None:
    """Put a snapshot into an algorithm of the same parameters that has been started.

    Raises:
        AlgorithmError: the state is that of another algorithm.
    """
    walk = _Walk(algorithm)
    for name, saved in state.items():
        setattr(algorithm, name, walk.put(vars(algorithm).get(name), saved, name))


class _Walk:
    """One way through the attributes of an algorithm."""

    def __init__(self, algorithm: Algorithm) -> None:
        replica = algorithm.replica
        self._algorithm = algorithm
        self._replicas = {id(item) for item in (algorithm, replica, replica.comm, replica.optimizer)}
        self._memory = {_memory(cast(torch.Tensor, vector)) for vector in (replica.w, replica.m)}

    def attributes(self) -> dict[str, Any]:
        """What is state of the algorithm itself."""
        known = {*self._algorithm.parameters(), "replica", _SCRATCH}
        return {name: value for name, value in vars(self._algorithm).items() if name not in known}

    def take(self, value: Any, where: str) -> Any:
        """A copy of a value as plain data and tensors; None for what is the replica's."""
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if self._is_replicas(value):
            return None
        if isinstance(value, torch.Tensor):
            return value.detach().clone()
        if isinstance(value, torch.Generator):
            return value.get_state()
        if isinstance(value, random.Random):
            return value.getstate()
        if isinstance(value, list | tuple | deque):
            return [self.take(item, f"{where}[{place}]") for place, item in enumerate(value)]
        if isinstance(value, dict):
            return {key: self.take(item, f"{where}[{key!r}]") for key, item in value.items()}
        if _is_fixed(value):
            return None
        if hasattr(value, "wait") and hasattr(value, "done"):
            raise self._error(f"{where} is still under way; a checkpoint needs `finish` first")
        if not hasattr(value, "__dict__"):
            raise self._error(
                f"{where} is a {type(value).__name__}, which a checkpoint cannot hold; expected numbers, text, "
                "tensors, random generators and what is made of them, or a state_dict and load_state_dict of its own"
            )
        parts = {name: item for name, item in vars(value).items() if name != _SCRATCH}
        return {_CLASS: type(value).__name__} | {name: self.take(v, f"{where}.{name}") for name, v in parts.items()}

    def put(self, target: Any, saved: Any, where: str) -> Any:
        """What shall stand where `target` stands: itself with the contents of `saved`, or a copy of that."""
        if self._is_replicas(target) or _is_fixed(target):
            return target
        if isinstance(saved, torch.Tensor):
            return _put_tensor(target, saved)
        if isinstance(target, random.Random):
            target.setstate(saved)
            return target
        if isinstance(saved, list):
            return self._put_list(target, saved, where)
        if not isinstance(saved, dict):
            return saved
        if _CLASS not in saved:
            olds = target if isinstance(target, dict) else {}
            return {key: self.put(olds.get(key), item, f"{where}[{key!r}]") for key, item in saved.items()}
        if type(target).__name__ != saved[_CLASS]:
            raise self._error(f"{where} was a {saved[_CLASS]} and is a {type(target).__name__} after `start`")
        for name, item in saved.items():
            if name != _CLASS:
                before = vars(target).get(name)
                after = self.put(before, item, f"{where}.{name}")
                if after is not before:
                    setattr(target, name, after)
        return target

    def _put_list(self, target: Any, saved: list[Any], where: str) -> Any:
        olds = list(target) if isinstance(target, list | tuple | deque) else []
        olds += [None] * (len(saved) - len(olds))
        places = range(len(saved))
        news = [self.put(olds[place], saved[place], f"{where}[{place}]") for place in places]
        if isinstance(target, tuple):
            return target if news == olds else tuple(news)
        return deque(news) if isinstance(target, deque) else news

    def _is_replicas(self, value: object) -> bool:
        return id(value) in self._replicas or (isinstance(value, torch.Tensor) and _memory(value) in self._memory)

    def _error(self, what: str) -> AlgorithmError:
        return AlgorithmError(f"algorithm '{self._algorithm.kind}': {what}")


def _is_fixed(value: object) -> bool:
    """What does not change while training goes on: functions, slices, frozen settings."""
    frozen = is_dataclass(value) and cast(Any, value).__dataclass_params__.frozen
    return frozen or callable(value) or isinstance(value, slice | range)


def _put_tensor(target: Any, saved: torch.Tensor) -> Any:
    if isinstance(target, torch.Generator):
        target.set_state(saved)
        return target
    if isinstance(target, torch.Tensor) and (target.shape, target.dtype) == (saved.shape, saved.dtype):
        return target.copy_(saved)
    return saved.clone()


def _memory(vector: torch.Tensor) -> int:
    return vector.untyped_storage().data_ptr()
