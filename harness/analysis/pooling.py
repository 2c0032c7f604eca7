"""Which repetitions are summarised together: those of hosts that are alike, or that the user wants together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from wanbench.harness.results.hosts import NOT_RECORDED, by_run, hosts_of
from wanbench.harness.results.scalability import host_of

Row = Mapping[str, Any]


def grouped(rows: Iterable[Row], *, across_hosts: bool = False) -> list[dict[str, Any]]:
    """The rows with an axis `hosts`: where the hosts of a run are not alike, each row's own; else None.

    Simulated rows have None, too. Rows that have the axis keep it, so a part of a run is grouped like the whole.

    Args:
        across_hosts: summarise all repetitions of a cell together.
    """
    rows = list(rows)
    if all("hosts" in row for row in rows):
        return [dict(row) for row in rows]
    apart = {run for run, mine in by_run(rows).items() if not across_hosts and hosts_of(mine).problem}
    return [{**row, "hosts": own_host(row) if row.get("run") in apart else None} for row in rows]


def own_host(row: Row) -> str | None:
    """The host of a row as a value of the axis `hosts`."""
    return None if row.get("testbed") == "virtual" else host_of(row) or NOT_RECORDED


def remarks(rows: Iterable[Row], *, across_hosts: bool = False) -> list[tuple[str, str]]:
    """Each run whose hosts are not alike, and a sentence: what is wrong, and how its repetitions are summarised."""
    pooled, apart = "--across-hosts pools them all the same", "Hosts are kept apart (--across-hosts pools them)"
    found = [(str(run), hosts_of(mine).problem) for run, mine in by_run(rows).items()]
    return [(run, f"{problem}. {pooled if across_hosts else apart}") for run, problem in found if problem]
