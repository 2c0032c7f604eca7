"""The axes that can be swept, and labels that tell cells apart. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# The axes besides the algorithm, the preferred for the columns of a table first.
AXES = (
    "rtt_ms", "workers", "profile", "rate_mbps", "loss_pct", "loss_burst", "jitter_ms", "tcp", "payload_scale",
    "channels", "workload", "collective", "mtbf_s", "mttr_s", "timeline", "emulator", "testbed", "hosts",
)  # fmt: skip


def tell_apart(rows: Iterable[dict[str, Any]]) -> None:
    """Extend the labels of cells that are equal in every shown column.

    Such cells differ in an axis that has no column, such as `train.lr`, or come from two versions of a spec and differ
    in their identity.
    """
    alike: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        if row["workers"] != 1:
            shown = (row["run"], row["algorithm"], *(str(row[axis]) for axis in AXES))
            alike.setdefault(shown, []).append(row)
    for group in alike.values():
        cells = {row["cell_key"]: row for row in group}
        if len(cells) > 1:
            added = _differences(list(cells.values()))
            for row in group:
                row["algorithm"] = f"{row['algorithm']} {added[row['cell_key']]}"


def _differences(cells: list[dict[str, Any]]) -> dict[str, str]:
    """The text to add to the label of each cell, by identity."""
    keys = sorted({key for cell in cells for key in cell["axes"] if len({str(c["axes"].get(key)) for c in cells}) > 1})
    added = {}
    for cell in cells:
        values = [f"{key}={cell['axes'][key]}" for key in keys if key in cell["axes"]]
        added[cell["cell_key"]] = " ".join(values)
    if len(set(added.values())) < len(cells) or not all(added.values()):
        return {key: f"{text} #{key[:6]}".strip() for key, text in added.items()}
    return added
