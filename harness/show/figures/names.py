"""Names of algorithms that a reader understands: "DTS d4 p20, top-k 1 %"."""

from collections.abc import Mapping
from typing import Any

from wanbench.harness.analysis.best import Standing
from wanbench.workloads.algorithms.registry import BUILT_IN
from wanbench.workloads.models.builtins import BUILTINS

_COMPRESSIONS = {"topk": "top-k", "chunk-topk": "chunk-wise top-k", "chunkwise": "chunk-wise", "signsgd": "signSGD"}
_LETTERS = {"delay": "d", "staleness": "s", "period": "p"}


def human(label: str, kind: str, params: Mapping[str, Any] | None) -> str:
    """The algorithm, its settings, and its compression in words: "DTS d20 p20, top-k 1 %".

    A name that a user gave stays as it is, but a compressed algorithm is named by its family.
    """
    params = params or {}
    compression = params.get("compression", "none")
    is_default = label == kind or label.startswith(f"{kind}-")
    if " " in label or (compression == "none" and not is_default):
        return label
    settings = [f"{letter}{params[name]}" for name, letter in _LETTERS.items() if name in params]
    if is_default:
        packed = compression["kind"] if isinstance(compression, Mapping) else compression
        settings = f"{label.removeprefix(kind)}-".partition(f"-{packed}-")[0].strip("-").split("-")
    family = BUILT_IN[kind].name.removesuffix(" updates") if kind in BUILT_IN else ""
    words = " ".join(filter(None, [family or kind, *settings]))
    return words if compression == "none" else f"{words}, {compressed(compression)}"


def line_name(line: Mapping[str, Any]) -> str:
    """The name of a cell or repetition of `analysis.summary`: its setting in words, and its choices."""
    words = {**line["words"]}
    if "algorithm" in words or not words:
        words = {"algorithm": human(line["setting"], str(line["kind"]), line["params"])} | {
            axis: word for axis, word in words.items() if axis != "algorithm"
        }
    return ", ".join(words.values())


def standing_name(standing: Standing) -> str:
    """The same of an algorithm on a network."""
    return standing.algorithm if standing.choices else human(standing.algorithm, standing.kind, standing.params)


def compressed(compression: Any) -> str:
    """A compression in words: "top-k 1 %", "no compression"."""
    if compression == "none":
        return "no compression"
    if not isinstance(compression, Mapping):
        return _COMPRESSIONS.get(str(compression), str(compression))
    kind = str(compression["kind"])
    share = [f"{100 * compression['ratio']:g} %"] if "ratio" in compression else []
    settings = [f"{name} {value}" for name, value in compression.items() if name not in {"kind", "ratio"}]
    return " ".join([_COMPRESSIONS.get(kind, kind), *share, *settings])


_OF_THE_PAPERS = "ImageNet"


def data_set(workload: str) -> str:
    """The data set of a built-in workload, as "digits, not ImageNet"; for a user's own model, the workload's name."""
    builtin = BUILTINS.get(workload)
    if builtin is None or builtin.dataset is None:
        return workload
    return builtin.dataset if builtin.dataset == _OF_THE_PAPERS else f"{builtin.dataset}, not {_OF_THE_PAPERS}"
