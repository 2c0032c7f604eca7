"""What a run varies: the axes of its networks, the choices that its curves and bars are named by, and their order.

A choice is what a user sets on any network, as the algorithm: the collective, TCP, and swept keys without a column such
as `comm.buckets`, `train.lr` or a key of the user's own program. Choices are a part of the label of a cell, so
tables and figures compare them as they compare algorithms.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from wanbench.harness.grouping import by_key
from wanbench.harness.spec.axes import SHORT_AXES, is_commands_own
from wanbench.harness.spec.command import suffix
from wanbench.harness.text import plain, rate
from wanbench.workloads.algorithms.registry import BUILT_IN

CONDITIONS = ("rtt_ms", "rate_mbps", "loss_pct", "loss_burst", "jitter_ms", "mtu")
"""The columns of a path that a sweep can set: axes of tables and figures, and what `wanbench check` compares."""

# The axes besides the algorithm, the preferred for the columns of a table first.
AXES = (
    "rtt_ms", "workers", "profile", *CONDITIONS[1:], "tcp", "host_tcp", "payload_scale", "channels", "workload",
    "collective", "mtbf_s", "mttr_s", "timeline", "emulator", "testbed", "hosts",
)  # fmt: skip

# The columns that a value can follow from: a run sweeps it only if it differs where these are equal.
_FOLLOWS_FROM: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(CONDITIONS, ("workers", "profile", "payload_scale")),
    "mttr_s": ("mtbf_s",),
    "channels": ("collective",),
    "emulator": ("testbed",),
    "hosts": ("testbed",),
}

_TESTBEDS = {"docker": "containers (docker)", "netns": "processes (netns)", "virtual": "simulation (virtual)"}

CHOICES = ("collective", "channels", "tcp", "host_tcp")
"""The columns that are choices."""

EARLIER = " (earlier)"
"""The end of a label of a cell that only an earlier version of the spec had."""

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
_WITHOUT_VALUE = {"mtbf_s": "without failures", "hosts": "any host"}


def axes_of(table: pd.DataFrame) -> list[str]:
    """The columns that this run sweeps and that are no choices, the most suitable as table columns first.

    A network value that follows from the profile and the number of workers (which changes the sites in use) is not an
    axis. Channels that follow from the algorithm, and an emulator or host from the testbed, are none either.
    """
    chosen = {axis for choices in table["choices"] for axis in choices}
    columns = ("algorithm", *AXES)
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*map(table.get, columns), strict=True)]
    return [axis for axis in swept_columns(rows) if axis not in chosen]


def swept_columns(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The columns that these rows sweep, choices included, as `axes_of`."""
    values = [{name: comparable(row[name]) for name in ("algorithm", *AXES)} for row in rows if row["workers"] != 1]
    axes = []
    for name in AXES:
        different = {row[name] for row in values}
        if len(different) <= 1:
            continue
        given = ("algorithm", *_FOLLOWS_FROM.get(name, ()))
        groups = by_key((tuple(row[key] for key in given), row[name]) for row in values)
        # Even if each algorithm has its own workload: speeds on different workloads cannot be compared.
        several = name == "workload" and len(different - {None}) > 1
        if several or any(len(set(group)) > 1 for group in groups.values()):
            axes.append(name)
    return axes


def axis_value(axis: str, value: object) -> str:
    """One value of an axis with its name and unit: "RTT 100 ms", "8 workers", "world4"."""
    if axis in _WITHOUT_VALUE and absent(value):
        return _WITHOUT_VALUE[axis]
    if axis == "rate_mbps" and isinstance(value, float) and not absent(value):
        return f"rate {rate(value)}"
    if axis in {"profile", "tcp", "collective", "workload"}:
        return str(value)
    if axis == "workers":
        return f"{value} workers"
    if axis == "host_tcp":
        return f"{value} hosts"
    if axis == "testbed":
        return _TESTBEDS.get(str(value), str(value))
    name, _, unit = AXIS_TITLES.get(axis, axis).partition(" (")
    return f"{name} {plain(value)} {unit.removesuffix(')')}".rstrip()


def set_choices(rows: Sequence[dict[str, Any]]) -> None:
    """Set `setting`, `choices`, `conditions`, `words` and `algorithm` of each row.

    `setting` is the label of the algorithm alone. `choices` has the values of what the run varies besides the network
    and the algorithm, by axis, and `conditions` those of keys of the network and the workload without a column. Their
    texts, `words`, make up `algorithm`, the label that tells curves apart: "ssgd, gloo", or "gloo, bucket 25" if
    all cells have one algorithm. Rows that have them keep them, so a part of a run is labelled like the whole.
    """
    if all("words" in row for row in rows):
        return
    for row in rows:
        row.update(setting=_setting(row), choices={}, conditions={}, words={})
    several = [row for row in rows if row["workers"] != 1]
    by_setting = by_key((row["setting"], row) for row in several)
    programs = _programs_keys(several)
    for group in by_setting.values():
        columns, keys = _swept_choices(group), dict.fromkeys([*programs, *_keys_apart(group)])
        for row in group:
            own = {key: (row["axes"] or {}).get(key) for key in keys}
            values = {name: row[name] for name in columns} | own
            for name, value in values.items():
                if not absent(value):
                    row["conditions" if _is_condition(name) else "choices"][name] = value
    words = _words(several)
    alone = len(by_setting) == 1
    for row in several:
        given = {**row["choices"], **row["conditions"]}
        row["words"] = {} if alone and given else {"algorithm": row["setting"]}
        row["words"] |= {axis: words[axis, str(value)] for axis, value in given.items()}
    _number(several)
    for row in rows:
        row["algorithm"] = label_without(row)


def label_without(row: Mapping[str, Any], axis: str = "") -> str:
    """The label of a row, without the value of a choice."""
    return ", ".join(word for name, word in row["words"].items() if name != axis) or str(row["setting"])


def value_text(axis: str, value: Any) -> str:
    """A value of a choice without the name of its axis: "gloo", "25", "true", '"a, b"'."""
    if axis in CHOICES or not isinstance(value, str | bool | float):
        return plain(value)
    if isinstance(value, float):
        return plain(value) if float(plain(value)) == value else repr(value)
    text = str(value).lower() if isinstance(value, bool) else value
    return json.dumps(text, ensure_ascii=False) if not text.strip() or "," in text else text


def natural(text: str) -> list[tuple[float, str]]:
    """Sort key of a text with numbers: "4MB" before "25MB"."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return [(float(part), "") if index % 2 else (math.inf, part) for index, part in enumerate(parts)]


def _setting(row: Mapping[str, Any]) -> str:
    """The label of a row's algorithm; without the axes of a user's own program, which its cell has in its label."""
    label, kind = str(row["algorithm"]), str(row["kind"])
    own = {key: value for key, value in (row["axes"] or {}).items() if is_commands_own(key)}
    if row["workers"] == 1 or not kind.startswith("command:") or not own:
        return label
    params = {key: value for key, value in (row["params"] or {}).items() if key not in own}
    return kind.removeprefix("command:") + suffix(params) + (EARLIER if label.endswith(EARLIER) else "")


def _is_condition(axis: str) -> bool:
    """True for a key of the network, the workload or failures, which is given, not chosen."""
    return axis.startswith(("workload.", "network.", "failures.")) and not axis.startswith("network.tcp.")


def _swept_choices(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns of one setting's choices. Channels that follow from the collective or its buckets are none."""
    given = any(key.endswith("channels") for row in rows for key in row["axes"] or {})
    swept = swept_columns({**row, "algorithm": ""} for row in rows)
    return [axis for axis in CHOICES if axis in swept and (axis != "channels" or given)]


def _programs_keys(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The axes of users' own programs of which the rows have several values; no column has them."""
    programs = [row["axes"] or {} for row in rows if str(row["kind"]).startswith("command:")]
    values = {(key, str(value)) for axes in programs for key, value in axes.items() if is_commands_own(key)}
    return sorted(key for key, count in Counter(key for key, _ in values).items() if count > 1)


def _keys_apart(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The swept keys that tell cells of one setting apart which are equal in every column."""
    columns = ["run", *(axis for axis in AXES if axis != "channels")]
    alike = by_key((tuple(str(row[name]) for name in columns), row["axes"] or {}) for row in rows)
    keys = dict.fromkeys(key for group in alike.values() for axes in group for key in axes if key != "algorithm")
    varied = [key for key in keys if any(len({str(axes.get(key)) for axes in group}) > 1 for group in alike.values())]
    return sorted(key for key in varied if SHORT_AXES.get(key, key) not in _OF_COLUMNS)


_OF_COLUMNS = {"comm.collective", "comm.channels", "network.tcp.congestion", "network.tcp.preset"}
_WITH_A_UNIT = re.compile(r"\d[\d.]* ?[A-Za-z]+")


def _words(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    """The text of each value of each choice and condition, by axis and value.

    A key is named, "bucket 25", unless all of its values have a unit, and no other key has one of them: "25MB".
    """
    given = by_key(item for row in rows for item in (*row["choices"].items(), *row["conditions"].items()))
    values = {axis: {str(value): value for value in of_axis} for axis, of_axis in given.items()}
    lasts = [axis.rpartition(".")[2] for axis in values]
    words = {}
    for axis, of_axis in values.items():
        last = axis.rpartition(".")[2]
        others = {text for other, of_other in values.items() if other != axis for text in of_other}
        speaks = all(isinstance(v, str) and _WITH_A_UNIT.fullmatch(v) and v not in others for v in of_axis.values())
        name = "" if speaks else f"{last if lasts.count(last) == 1 else axis} "
        for text, value in of_axis.items():
            words[axis, text] = axis_value(axis, value) if axis in CHOICES else name + value_text(axis, value)
    return words


def _number(rows: Sequence[dict[str, Any]]) -> None:
    """Add the beginning of their identity to cells that no column and no key tells apart.

    They come from two versions of a spec.
    """
    alike = by_key(((str(row["run"]), label_without(row), *(str(row[axis]) for axis in AXES)), row) for row in rows)
    for group in alike.values():
        if len({row["cell_key"] for row in group}) > 1:
            for row in group:
                row["words"]["cell"] = f"#{row['cell_key'][:6]}"


# The order of axes, algorithms and values in tables, legends and figures.


def absent(value: object) -> bool:
    """True for None and NaN: values that do not apply or were not measured."""
    return value is None or value != value


def comparable(value: Any) -> Any:
    """A value in which NaN equals NaN."""
    return None if absent(value) else value


def by_value(value: object) -> tuple[int, float, str]:
    """Sort key of a value: numbers by size, then words, then None and NaN."""
    if absent(value):
        return 2, 0.0, ""
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))


def algorithm_order(label: str, kind: str, params: Mapping[str, Any] | None) -> tuple[object, ...]:
    """Sort key of an algorithm: family (your own ones last), then its parameters by size, then its label."""
    family = [*BUILT_IN].index(kind) if kind in BUILT_IN else len(BUILT_IN)
    numbers = tuple(sorted((k, float(v)) for k, v in (params or {}).items() if isinstance(v, int | float)))
    return family, "" if kind in BUILT_IN else kind, numbers, label
