"""Numbers, sizes, rates, times and lists of names as people read them."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

_SIZES = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
_RATES = (("Gbit/s", 1e3), ("Mbit/s", 1.0))


def shown(value: object) -> str:
    """An entry of a table: numbers without superfluous digits, "-" for None and NaN."""
    return "-" if value is None or value != value else plain(value)


def plain(value: Any) -> str:
    """A value as text: short numbers, and JSON for tables and lists."""
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value, sort_keys=True) if isinstance(value, Mapping | list) else str(value)


def listed(names: Sequence[str], most: int) -> str:
    """The first `most` names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def percent(share: float) -> str:
    """ "36 %", "0.8 %"."""
    if math.isnan(share):
        return "-"
    return f"{100 * share:.0f} %" if share >= 0.0095 or share < 5e-4 else f"{100 * share:.1g} %"


def seconds(value: float) -> str:
    """A time in a title: "42 s", "7.0 s"."""
    return f"{value:.0f} s" if value >= 10 else f"{value:.1f} s"


def milliseconds(time_s: float) -> str:
    """A time of a step: "1195", "8.21"."""
    return f"{1e3 * time_s:.0f}" if time_s >= 0.1 else f"{1e3 * time_s:#.3g}"


def size(size_bytes: float) -> str:
    """Bytes in the unit that suits them, three digits: "36 B", "7.66 kB", "102 MB"."""
    unit, factor = next((entry for entry in _SIZES if size_bytes >= 0.9995 * entry[1]), ("B", 1.0))
    return f"{float(f'{size_bytes / factor:.3g}'):g} {unit}"


def sent(megabytes: float | None, unscaled: float | None) -> str:
    """Bytes sent, and those of the workload if its messages are scaled: "1.02 MB (102 MB unscaled)"."""
    if megabytes is None:
        return "-"
    return size(megabytes * 1e6) + ("" if unscaled is None else f" ({size(unscaled * 1e6)} unscaled)")


def rate(mbps: float) -> str:
    """A rate in the unit that suits it: "5 Gbit/s"."""
    unit, factor = next((entry for entry in _RATES if mbps >= entry[1]), ("kbit/s", 1e-3))
    return f"{mbps / factor:.4g} {unit}"
