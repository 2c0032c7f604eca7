"""Compressors by name, as in `compression` of a spec."""

import importlib
from collections.abc import Mapping
from typing import Any, cast

from wanbench.netprofiles.errors import did_you_mean
from wanbench.workloads import parameters
from wanbench.workloads.compression.base import Compressor, CompressorError
from wanbench.workloads.parameters import unknown_or_missing

NONE = "none"

BUILT_IN: Mapping[str, str] = {
    "topk": "topk:TopK",
    "chunk-topk": "chunktopk:ChunkTopK",
    "dgc": "dgc:DGC",
    "chunkwise": "chunkwise:Chunkwise",
    "randomk": "randomk:RandomK",
    "powersgd": "powersgd:PowerSGD",
    "signsgd": "signsgd:SignSGD",
    "qsgd": "qsgd:QSGD",
    "terngrad": "qsgd:TernGrad",
    "fp16": "half:FP16",
    "bf16": "half:BF16",
}


def kinds() -> list[str]:
    """The built-in kinds."""
    return list(BUILT_IN)


def find(kind: str) -> type[Compressor]:
    """Return the class of a kind; imports torch. Raises: CompressorError."""
    if kind not in BUILT_IN:
        listed = ", ".join([NONE, *BUILT_IN])
        raise CompressorError(f"compressor '{kind}' is unknown{did_you_mean(kind, BUILT_IN)} (known: {listed})")
    module, _, name = BUILT_IN[kind].partition(":")
    return cast(type[Compressor], getattr(importlib.import_module(f"wanbench.workloads.compression.{module}"), name))


def create(value: object) -> Compressor | None:
    """Return the compressor that a value describes; None for "none".

    Args:
        value: a name, a table such as { kind = "topk", ratio = 0.01 }, or a compressor.

    Raises:
        CompressorError: it names no compressor, or a parameter is unknown, of the wrong type or out of range.
    """
    if isinstance(value, Compressor):
        return value
    if value == NONE:
        return None
    if isinstance(value, str):
        return find(value)()
    if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
        raise CompressorError(f'{value!r}: expected a name, or a table such as {{ kind = "topk", ratio = 0.01 }}')
    params: dict[str, Any] = {key: item for key, item in value.items() if key != "kind"}
    cls = find(value["kind"])
    unknown_or_missing(cls, params)
    return cls(**params)


def describe(kind: str) -> dict[str, object]:
    """Return the parameters with type and default, the source, and how messages travel. Raises: CompressorError."""
    cls = find(kind)
    return parameters.describe(cls) | {
        "travels_by": "all_reduce" if cls.averages else "all_gather",
        "error_feedback": cls.feedback,
        "unbiased": cls.unbiased,
    }
