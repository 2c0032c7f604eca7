"""Check a call of `wrap` before anything else: the message for a wrong call shows the right one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING

import torch

from wanbench.workloads.algorithms.base import Algorithm
from wanbench.workloads.parameters import default_of

_EXAMPLE = 'call wrap(model, optimizer, "dts", delay=4, period=4)'


def check_call(model: object, optimizer: object, algorithm: object, params: Mapping[str, object]) -> None:
    """Check the arguments of `wrap`. Raises: TypeError."""
    problem = _of_the_loop(model, optimizer) or _of_the_algorithm(algorithm, params)
    if problem:
        raise TypeError(problem)


def _of_the_loop(model: object, optimizer: object) -> str | None:
    if isinstance(model, torch.optim.Optimizer) and isinstance(optimizer, torch.nn.Module):
        return "wrap: model and optimizer are swapped; call wrap(model, optimizer, ...)"
    if not isinstance(model, torch.nn.Module):
        return f"wrap: model: expected a torch.nn.Module, got {_described(model)}; {_EXAMPLE}"
    if isinstance(optimizer, str | Algorithm):
        given = _instance(optimizer, {}) if isinstance(optimizer, Algorithm) else repr(optimizer)
        return f"wrap(model, {given}): the optimizer is missing; call wrap(model, optimizer, {given})"
    if not isinstance(optimizer, torch.optim.Optimizer):
        return f"wrap: optimizer: expected a torch.optim.Optimizer, got {_described(optimizer)}; {_EXAMPLE}"
    return None


def _of_the_algorithm(algorithm: object, params: Mapping[str, object]) -> str | None:
    if isinstance(algorithm, Algorithm):
        if not params:
            return None
        right = _instance(algorithm, params)
        return f"wrap: {_written(params)} beside an instance; call wrap(model, optimizer, {right})"
    if isinstance(algorithm, type) and issubclass(algorithm, Algorithm):
        required = [f"{name}=..." for name, item in algorithm.parameters().items() if default_of(item) is MISSING]
        made = f"{algorithm.__name__}({_written(params) or ', '.join(required)})"
        return f"wrap: {algorithm.__name__} is a class, not an instance; call wrap(model, optimizer, {made})"
    if algorithm is None and params:
        return f"wrap: {_written(params)} without an algorithm; {_EXAMPLE}"
    if not isinstance(algorithm, str | None):
        return f"wrap: algorithm: expected a name or an instance, got {_described(algorithm)}; {_EXAMPLE}"
    return None


def _instance(algorithm: Algorithm, params: Mapping[str, object]) -> str:
    """How to write an instance, without defaults, with `params` in place of its own."""
    items = algorithm.parameters()
    kept = {name: value for name, value in algorithm.params().items() if value != default_of(items[name])}
    return f"{type(algorithm).__name__}({_written({**kept, **params})})"


def _written(params: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in params.items())


def _described(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"an object of type {type(value).__name__}"
