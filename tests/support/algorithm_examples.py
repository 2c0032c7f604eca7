"""The built-in algorithms that communicate, each with the examples of parameters that its class has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from _pytest.mark import ParameterSet

from wanbench.workloads.algorithms import registry

KINDS = [kind for kind in registry.kinds() if kind != "local"]
EXAMPLES = [(kind, params) for kind in KINDS for params in registry.find(kind).examples]

# The other examples of a kind take other parameters through the same code.
FIRST_EXAMPLES = [
    pytest.param(kind, params, marks=() if params == registry.find(kind).examples[0] else pytest.mark.long)
    for kind, params in EXAMPLES
]

# One of each way to exchange: at once, late, seldom, two optimizers, pushed, in pairs, through a server, datagrams.
REPRESENTATIVES = {"ssgd", "delayed", "sparse", "dts", "diloco", "sgp", "adpsgd", "async-local-sgd", "rps"}


def represented(kinds: Iterable[str]) -> list[ParameterSet]:
    """The kinds as parameters of a test; each build tries those that represent the others."""
    return [pytest.param(kind, marks=() if kind in REPRESENTATIVES else pytest.mark.long) for kind in kinds]


def written(kind: str, params: Mapping[str, object] | None = None) -> str:
    """A line of [algorithms]: a kind with these parameters, or with its first example."""
    return f"{kind} = {_inline(registry.find(kind).examples[0] if params is None else params)}"


def _inline(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{name} = {_inline(item)}' for name, item in value.items())} }}"
    return str(value).lower() if isinstance(value, bool) else repr(value)
