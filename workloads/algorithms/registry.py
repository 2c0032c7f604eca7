"""Algorithms by name, as in a spec's `[algorithms]` table."""

from __future__ import annotations

import importlib
import itertools
import json
from collections.abc import Mapping

from wanbench.netprofiles.errors import did_you_mean
from wanbench.workloads.algorithms.base import Algorithm, AlgorithmError
from wanbench.workloads.parameters import unknown_or_missing

ALGORITHM, PARAMS = "WANBENCH_ALGORITHM", "WANBENCH_PARAMS"
"""Environment variables of a program: a kind, and its parameters as JSON."""

_BUILT_IN: Mapping[str, str] = {
    "local": "base:Algorithm",
    "ssgd": "ssgd:SSGD",
    "delayed": "delayed:Delayed",
    "sparse": "sparse:Sparse",
    "dts": "dts:DTS",
    "dga": "dga:DGA",
    "localsgd": "localsgd:LocalSGD",
    "cocod": "cocod:CoCoD",
    "overlap-localsgd": "overlap:OverlapLocalSGD",
    "diloco": "diloco:DiLoCo",
    "streaming-diloco": "streaming:StreamingDiLoCo",
    "eager-diloco": "eager:EagerDiLoCo",
    "sparseloco": "sparseloco:SparseLoCo",
    "async-local-sgd": "async_local_sgd:AsyncLocalSGD",
    "decoupled-diloco": "decoupled:DecoupledDiLoCo",
    "halos": "halos:HALoS",
    "olco3": "olco3:OLCO3",
    "rps": "rps:RPS",
    "gradient-sharing": "gradient_sharing:GradientSharing",
    "sgp": "sgp:SGP",
    "osgp": "osgp:OSGP",
    "dpsgd": "dpsgd:DPSGD",
    "ecdpsgd": "ecdpsgd:ECDPSGD",
    "adpsgd": "adpsgd:ADPSGD",
}


def kinds() -> list[str]:
    """The built-in kinds."""
    return list(_BUILT_IN)


def find(kind: str) -> type[Algorithm]:
    """Return the class of a built-in kind, or of your own: `"my_pkg.sync:Mine"`.

    Raises:
        AlgorithmError: there is no such kind, or it is not an `Algorithm`.
    """
    if kind in _BUILT_IN:
        module, _, name = _BUILT_IN[kind].partition(":")
        found: type[Algorithm] = getattr(importlib.import_module(f"wanbench.workloads.algorithms.{module}"), name)
        return found
    if ":" in kind:
        return _load(kind)
    known = ", ".join(_BUILT_IN)
    raise AlgorithmError(
        f"algorithm '{kind}' is unknown{did_you_mean(kind, _BUILT_IN)} (known: {known}; your own: 'module:Class')"
    )


def create(kind: str, params: Mapping[str, object]) -> Algorithm:
    """Return an algorithm with these parameters.

    Raises:
        AlgorithmError: the kind or a parameter is unknown, missing, of the wrong type or out of range.
    """
    cls = find(kind)
    try:
        unknown_or_missing(cls, params)
    except AlgorithmError as error:  # name it as the user wrote it, perhaps "module:Class"
        raise AlgorithmError(str(error).replace(f"algorithm '{cls.kind}'", f"algorithm '{kind}'", 1)) from None
    return cls(**params)


def from_environment(environment: Mapping[str, str]) -> Algorithm:
    """Return the algorithm that the environment of a program names.

    Raises:
        AlgorithmError: it names none, or one that does not exist.
    """
    kind = environment.get(ALGORITHM)
    if kind is None:
        raise AlgorithmError(
            f'no algorithm: name one, as in wrap(model, optimizer, "ssgd"), set {ALGORITHM}=ssgd, or run under a spec '
            "with [algorithms]"
        )
    text = environment.get(PARAMS, "{}")
    try:
        params = json.loads(text)
    except ValueError:
        params = None
    if not isinstance(params, dict):
        raise AlgorithmError(f'{PARAMS}={text}: expected a JSON object, such as {{"delay": 4}}')
    try:
        return create(kind, params)
    except AlgorithmError as error:
        raise AlgorithmError(f"{ALGORITHM}={kind}: {error}") from None


def expand(kind: str, params: Mapping[str, object]) -> list[dict[str, object]]:
    """Return one parameter set per combination of the parameters given as lists; the last varies fastest.

    Raises:
        AlgorithmError: a list is empty, or `create` refuses one of the sets.
    """
    sets = alternatives(kind, params)
    for one in sets:
        create(kind, one)
    return sets


def alternatives(kind: str, params: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the combinations of the lists in a table; a nested table, as for `compression`, has its own lists.

    Raises:
        AlgorithmError: a list is empty.
    """
    axes: dict[str, list[object]] = {}
    for name, value in params.items():
        axes[name] = []
        for one in value if isinstance(value, list) else [value]:
            axes[name] += alternatives(kind, one) if isinstance(one, Mapping) else [one]
        if not axes[name]:
            raise AlgorithmError(f"algorithm '{kind}': {name} = []; expected a value or a list with at least one")
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _load(kind: str) -> type[Algorithm]:
    module, _, name = kind.partition(":")
    try:
        loaded = importlib.import_module(module)
    except (ImportError, ValueError) as error:
        hint = "is its folder on PYTHONPATH?"
        raise AlgorithmError(f"algorithm '{kind}': cannot import '{module}' ({error}); {hint}") from error
    found: object = getattr(loaded, name, None)
    if found is None:
        near = did_you_mean(name, [key for key, value in vars(loaded).items() if isinstance(value, type)])
        raise AlgorithmError(f"algorithm '{kind}': module '{module}' has no '{name}'{near}")
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise AlgorithmError(
            f"algorithm '{kind}': '{name}' is not a subclass of wanbench.workloads.algorithms.base.Algorithm"
        )
    return found
