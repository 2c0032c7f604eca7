"""What a run varies: the axes of its networks, and the choices that its curves and bars are named by. Pure.

A choice is what a user sets on any network, as the algorithm: the collective, TCP, and every swept key without a column
of its own, such as `comm.buckets` or a key of the user's own program. Choices are a part of the label of a cell, so
tables and figures compare them as they compare algorithms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from wanbench.harness.analysis.order import AXES, CONDITIONS, absent
from wanbench.harness.spec.axes import is_commands_own
from wanbench.harness.spec.command import suffix
from wanbench.harness.text import plain, rate

CHOICES = ("collective", "channels", "tcp", "host_tcp")
"""The columns that are choices."""

AXIS_TITLES = {
    "rtt_ms": "RTT (ms)",
    "workers": "workers",
    "profile": "profile",
    "rate_mbps": "rate (Mbit/s)",
    "loss_pct": "loss (%)",
    "loss_burst": "loss burst (packets)",
    "jitter_ms": "jitter (ms)",
    "mtu": "MTU (bytes)",
    "tcp": "TCP",
    "host_tcp": "hosts' TCP",
    "payload_scale": "payload scale",
    "mtbf_s": "time between failures (s)",
    "mttr_s": "time to repair (s)",
    "hosts": "host",
}


def axes_of(table: pd.DataFrame) -> list[str]:
    """The columns that this run sweeps and that are no choices, the most suitable as table columns first.

    A network value that follows from the profile and the number of workers (which changes the sites in use) is not an
    axis. Channels that follow from the algorithm, and an emulator or host from the testbed, are none either.
    """
    chosen = {axis for choices in table["choices"] for axis in choices}
    return [axis for axis in swept_columns(table) if axis not in chosen]


def swept_columns(table: pd.DataFrame) -> list[str]:
    """The columns that this run sweeps, choices included, as `axes_of`."""
    swept = table[table["workers"] != 1]
    axes = []
    for name in AXES:
        if swept[name].nunique(dropna=False) <= 1:  # in no group are there more; groups take long
            continue
        given = ["algorithm"]
        if name in CONDITIONS:
            given += ["workers", "profile", "payload_scale"]
        elif name == "mttr_s":
            given += ["mtbf_s"]
        elif name == "channels":
            given += ["collective"]
        elif name in {"emulator", "hosts"}:
            given += ["testbed"]
        # Even if each algorithm has its own workload: speeds on different workloads cannot be compared.
        several = name == "workload" and swept[name].nunique() > 1
        if several or swept.groupby(given, dropna=False)[name].nunique(dropna=False).max() > 1:
            axes.append(name)
    return axes


def axis_value(axis: str, value: object) -> str:
    """One value of an axis with its name and unit: "RTT 100 ms", "8 workers", "world4"."""
    if axis == "rate_mbps" and isinstance(value, float) and value == value:
        return f"rate {rate(value)}"
    if axis in {"profile", "tcp", "host_tcp", "collective", "workload"}:
        return str(value)
    if axis == "workers":
        return f"{value} workers"
    if axis == "mtbf_s" and absent(value):
        return "without failures"
    if axis == "hosts" and absent(value):
        return "any host"
    name, _, unit = AXIS_TITLES.get(axis, axis).partition(" (")
    return f"{name} {plain(value)} {unit.removesuffix(')')}".rstrip()


def set_choices(rows: Sequence[dict[str, Any]]) -> None:
    """Set `setting`, `choices`, `words` and `algorithm` of each row.

    `setting` is the label of the algorithm alone. `choices` has the values of what the run varies besides the network
    and the algorithm, by axis, and `words` their texts. They make up `algorithm`, the label that tells curves apart:
    "ssgd, gloo", or "gloo, bucket 25" if all cells have one algorithm. Rows that have them keep them, so a part of
    a run is labelled like the whole.
    """
    if all("words" in row for row in rows):
        return
    for row in rows:
        row.update(setting=_setting(row), choices={}, words={})
    several = [row for row in rows if row["workers"] != 1]
    if not several:
        return
    by_setting: dict[str, list[dict[str, Any]]] = {}
    for row in several:
        by_setting.setdefault(row["setting"], []).append(row)
    for group in by_setting.values():
        columns, keys = _swept_choices(group), _own_keys(group)
        for row in group:
            values = {name: row[name] for name in columns} | {key: (row["axes"] or {}).get(key) for key in keys}
            row["choices"] = {name: value for name, value in values.items() if not absent(value)}
    alone, words = len(by_setting) == 1, _words(several)
    for row in several:
        row["words"] = {axis: words[axis, str(value)] for axis, value in row["choices"].items()}
        if not (alone and row["choices"]):
            row["words"] = {"algorithm": row["setting"]} | row["words"]
    _number(several)
    for row in rows:
        row["algorithm"] = label_without(row)


def label_without(row: Mapping[str, Any], axis: str = "") -> str:
    """The label of a row, without the value of a choice."""
    return ", ".join(word for name, word in row["words"].items() if name != axis) or str(row["setting"])


def _setting(row: Mapping[str, Any]) -> str:
    """The label of a row's algorithm; without the axes of a user's own program, which its cell has in its label."""
    label, kind = str(row["algorithm"]), str(row["kind"])
    own = {key: value for key, value in (row["axes"] or {}).items() if is_commands_own(key)}
    if row["workers"] == 1 or not kind.startswith("command:") or not own:
        return label
    return kind.removeprefix("command:") + suffix(
        {key: value for key, value in (row["params"] or {}).items() if key not in own}
    )


def _swept_choices(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns of one setting's choices. Channels that follow from the collective or its buckets are none."""
    table = pd.DataFrame([{name: row[name] for name in ("algorithm", *AXES)} for row in rows], dtype=object)
    table["algorithm"] = ""
    given = any(key.endswith("channels") for row in rows for key in row["axes"] or {})
    swept = swept_columns(table)
    return [axis for axis in CHOICES if axis in swept and (axis != "channels" or given)]


def _own_keys(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The swept keys that tell cells apart which are equal in every column."""
    alike: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        alike.setdefault((str(row["run"]), row["setting"], *(str(row[axis]) for axis in AXES)), []).append(
            row["axes"] or {}
        )
    keys = dict.fromkeys(key for group in alike.values() for axes in group for key in axes if key != "algorithm")
    return [key for key in keys if any(len({str(axes.get(key)) for axes in group}) > 1 for group in alike.values())]


def _words(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    """The text of each value of each choice. Text that only one key has needs no name: "25MB", but "bucket 25"."""
    values = {(axis, str(value)): value for row in rows for axis, value in row["choices"].items()}
    texts = [str(value) for value in values.values()]
    keys = [axis.rpartition(".")[2] for axis in dict.fromkeys(axis for axis, _ in values)]
    words = {}
    for (axis, text), value in values.items():
        last = axis.rpartition(".")[2]
        if axis in CHOICES:
            words[axis, text] = axis_value(axis, value)
        elif isinstance(value, str) and texts.count(text) == 1 and not text.replace(".", "").isdecimal():
            words[axis, text] = text
        else:
            words[axis, text] = f"{last if keys.count(last) == 1 else axis} {_plain(value)}"
    return words


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else plain(value)


def _number(rows: Sequence[dict[str, Any]]) -> None:
    """Add the beginning of their identity to cells that no column and no key tells apart.

    They come from two versions of a spec.
    """
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        alike.setdefault((str(row["run"]), label_without(row), *(str(row[axis]) for axis in AXES)), []).append(row)
    for group in alike.values():
        if len({row["cell_key"] for row in group}) > 1:
            for row in group:
                row["words"]["cell"] = f"#{row['cell_key'][:6]}"
