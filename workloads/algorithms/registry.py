"""Algorithms by name, as in a spec's `[algorithms]` table."""

import importlib
import itertools
import json
from collections.abc import Mapping
from typing import NamedTuple

from wanbench.netprofiles.errors import did_you_mean
from wanbench.workloads.algorithms.base import Algorithm, AlgorithmError
from wanbench.workloads.parameters import unknown_or_missing

ALGORITHM, PARAMS = "WANBENCH_ALGORITHM", "WANBENCH_PARAMS"
"""Environment variables of a program: a kind, and its parameters as JSON."""


class BuiltIn(NamedTuple):
    """A built-in algorithm.

    Attributes:
        path: its class, "module:Class" in this package; "" if it was removed.
        name: its name in a sentence; "" if that is its label.
        colour, marker: its look in every figure. Colours (most of Paul Tol's, safe for colour-blind readers) repeat;
            markers do not, so the algorithms can be told apart in grey. A marker is one of matplotlib's.
        instead: what to use, if it was removed. Its line stays, because recorded runs are still drawn.
    """

    path: str
    name: str
    colour: str
    marker: str | tuple[int, int, float]
    instead: str = ""


BUILT_IN: Mapping[str, BuiltIn] = {
    "local": BuiltIn("base:Algorithm", "", "#BBBBBB", "x"),
    "ssgd": BuiltIn("ssgd:SSGD", "SSGD", "#222222", "o"),
    "delayed": BuiltIn("delayed:Delayed", "delayed updates", "#4477AA", "s"),
    "sparse": BuiltIn("sparse:Sparse", "sparse updates", "#228833", "^"),
    "dts": BuiltIn("dts:DTS", "DTS", "#EE6677", "p"),
    "dga": BuiltIn("dga:DGA", "DGA", "#4477AA", (3, 1, 0)),
    "localsgd": BuiltIn("localsgd:LocalSGD", "local SGD", "#117733", (5, 0, 180)),
    "cocod": BuiltIn("cocod:CoCoD", "CoCoD-SGD", "#999933", "X"),
    "overlap-localsgd": BuiltIn("overlap:OverlapLocalSGD", "overlap local SGD", "#44AA99", (7, 0, 0)),
    "diloco": BuiltIn("diloco:DiLoCo", "DiLoCo", "#DDCC77", (4, 1, 0)),
    "streaming-diloco": BuiltIn("streaming:StreamingDiLoCo", "streaming DiLoCo", "#CC6677", (6, 1, 0)),
    "eager-diloco": BuiltIn("eager:EagerDiLoCo", "eager DiLoCo", "#AA4499", (5, 1, 0)),
    "sparseloco": BuiltIn("sparseloco:SparseLoCo", "SparseLoCo", "#DDAA33", (3, 1, 180)),
    "decoupled-diloco": BuiltIn(
        "", "Decoupled DiLoCo", "#228833", (4, 1, 45), "'halos', or your own algorithm (docs/how-to/own-algorithm.md)"
    ),
    "async-local-sgd": BuiltIn("async_local_sgd:AsyncLocalSGD", "async local SGD", "#EE7733", (8, 1, 0)),
    "halos": BuiltIn("halos:HALoS", "HALoS", "#332288", (10, 1, 0)),
    "olco3": BuiltIn("olco3:OLCO3", "OLCO3", "#AA3377", "v"),
    "rps": BuiltIn("rps:RPS", "RPS", "#CCBB44", "P"),
    "gradient-sharing": BuiltIn("rps:GradientSharing", "gradient sharing", "#661100", "*"),
    "sgp": BuiltIn("sgp:SGP", "SGP", "#66CCEE", "h"),
    "osgp": BuiltIn("osgp:OSGP", "overlapped SGP", "#332288", "H"),
    "dpsgd": BuiltIn("dpsgd:DPSGD", "D-PSGD", "#EE7733", "<"),
    "ecdpsgd": BuiltIn("ecdpsgd:ECDPSGD", "ECD-PSGD", "#777777", "8"),
    "adpsgd": BuiltIn("adpsgd:ADPSGD", "AD-PSGD", "#882255", ">"),
}
"""By kind, in the order of tables and legends."""


def kinds() -> list[str]:
    """The built-in kinds."""
    return [kind for kind, built_in in BUILT_IN.items() if built_in.path]


def find(kind: str) -> type[Algorithm]:
    """Return the class of a built-in kind, or of your own: `"my_pkg.sync:Mine"`.

    Raises:
        AlgorithmError: there is no such kind, or it was removed, or it is not an `Algorithm`.
    """
    if kind in BUILT_IN:
        built_in = BUILT_IN[kind]
        if not built_in.path:
            raise AlgorithmError(f"algorithm '{kind}' was removed; use {built_in.instead}")
        module, _, name = built_in.path.partition(":")
        cls: type[Algorithm] = getattr(importlib.import_module(f"wanbench.workloads.algorithms.{module}"), name)
        return cls
    if ":" in kind:
        return _load(kind)
    raise AlgorithmError(
        f"algorithm '{kind}' is unknown{did_you_mean(kind, kinds())} "
        f"(known: {', '.join(kinds())}; your own: 'module:Class')"
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


def alternatives(kind: str, params: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the combinations of the lists in a table; a nested table, as for `compression`, has its own lists.

    Raises:
        AlgorithmError: a list is empty.
    """
    axes: dict[str, list[object]] = {}
    for name, value in params.items():
        axes[name] = []
        for item in value if isinstance(value, list) else [value]:
            axes[name] += alternatives(kind, item) if isinstance(item, Mapping) else [item]
        if not axes[name]:
            raise AlgorithmError(f"algorithm '{kind}': {name} = []; expected a value or a list with at least one")
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _load(kind: str) -> type[Algorithm]:
    module, _, name = kind.partition(":")
    try:
        loaded = importlib.import_module(module)
    except (ImportError, ValueError) as error:
        raise AlgorithmError(
            f"algorithm '{kind}': cannot import '{module}' ({error}); is its folder on PYTHONPATH?"
        ) from error
    cls: object = getattr(loaded, name, None)
    if cls is None:
        near = did_you_mean(name, [key for key, value in vars(loaded).items() if isinstance(value, type)])
        raise AlgorithmError(f"algorithm '{kind}': module '{module}' has no '{name}'{near}")
    if not (isinstance(cls, type) and issubclass(cls, Algorithm)):
        raise AlgorithmError(
            f"algorithm '{kind}': '{name}' is not a subclass of wanbench.workloads.algorithms.base.Algorithm"
        )
    return cls
