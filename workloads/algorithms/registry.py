"""Algorithms by name: what a spec's `[algorithms]` table can say."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Mapping
from dataclasses import MISSING
from difflib import get_close_matches

from workloads.algorithms.base import Algorithm, AlgorithmError
from workloads.algorithms.delayed import Delayed
from workloads.algorithms.dts import DTS
from workloads.algorithms.sparse import Sparse
from workloads.algorithms.ssgd import SSGD

_BUILT_IN: Mapping[str, type[Algorithm]] = {cls.kind: cls for cls in (Algorithm, SSGD, Delayed, Sparse, DTS)}


def kinds() -> list[str]:
    """The built-in kinds."""
    return list(_BUILT_IN)


def find(kind: str) -> type[Algorithm]:
    """The class of a built-in kind, or of one's own: `"my_pkg.sync:Mine"`.

    Raises:
        AlgorithmError: there is no such kind, or it is not an `Algorithm`.
    """
    if kind in _BUILT_IN:
        return _BUILT_IN[kind]
    if ":" in kind:
        return _load(kind)
    known = ", ".join(_BUILT_IN)
    raise AlgorithmError(
        f"algorithm '{kind}' is unknown{_near(kind, _BUILT_IN)} (known: {known}; your own: 'module:Class')"
    )


def parameters(kind: str) -> dict[str, str]:
    """The parameters of a kind, by name, with their types as written: {"delay": "int"}.

    Raises:
        AlgorithmError: there is no such kind.
    """
    items = find(kind).parameters()
    return {name: item.type if isinstance(item.type, str) else item.type.__name__ for name, item in items.items()}


def create(kind: str, params: Mapping[str, object]) -> Algorithm:
    """An algorithm with its parameters.

    Raises:
        AlgorithmError: the kind or a parameter is unknown, missing, of the wrong type or out of range.
    """
    cls = find(kind)
    known = parameters(kind)
    for name in params:
        if name not in known:
            near, valid = _near(name, known), ", ".join(known) or "none"
            raise AlgorithmError(f"algorithm '{kind}' has no parameter '{name}'{near} (it takes {valid})")
    for name, item in cls.parameters().items():
        required = item.default is MISSING and item.default_factory is MISSING
        if required and name not in params:
            raise AlgorithmError(f"algorithm '{kind}' needs parameter '{name}' ({known[name]})")
    return cls(**params)


def label(kind: str, params: Mapping[str, object]) -> str:
    """The label of an algorithm: `dts-d20-p4`, `delayed-d4`, `sparse-p4`, `ssgd`.

    Raises:
        AlgorithmError: as `create`.
    """
    return create(kind, params).label


def expand(kind: str, params: Mapping[str, object]) -> list[dict[str, object]]:
    """One parameter set for each combination of the parameters given as lists, the last one varying fastest.

    Raises:
        AlgorithmError: a list is empty, or a resulting algorithm is refused by `create`.
    """
    axes = {name: value if isinstance(value, list) else [value] for name, value in params.items()}
    for name, values in axes.items():
        if not values:
            raise AlgorithmError(f"algorithm '{kind}': {name} = []; expected a value or a list with at least one")
    sets = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    for one in sets:
        create(kind, one)
    return sets


def _load(kind: str) -> type[Algorithm]:
    module, _, name = kind.partition(":")
    try:
        loaded = importlib.import_module(module)
    except (ImportError, ValueError) as error:
        hint = "is its folder on PYTHONPATH?"
        raise AlgorithmError(f"algorithm '{kind}': cannot import '{module}' ({error}); {hint}") from error
    found: object = getattr(loaded, name, None)
    if found is None:
        raise AlgorithmError(f"algorithm '{kind}': module '{module}' has no '{name}'{_near(name, vars(loaded))}")
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise AlgorithmError(f"algorithm '{kind}': '{name}' is not a subclass of workloads.algorithms.base.Algorithm")
    return found


def _near(name: str, known: Mapping[str, object]) -> str:
    match = get_close_matches(name, known, n=1)
    return f"; did you mean '{match[0]}'?" if match else ""
