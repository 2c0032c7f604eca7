"""Whether the hosts of a run are alike: the step times of their one-worker cells. Pure."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from wanbench.harness.grouping import by_key
from wanbench.harness.results.rules import MAX_HOSTS_APART_PCT
from wanbench.harness.results.scalability import Row, host_of, one_worker_step_times

NOT_RECORDED = "not recorded"


@dataclass(frozen=True)
class Hosts:
    """The hosts that measured valid repetitions of one run.

    Attributes:
        names: in order; "not recorded" stands for all rows without a host. None if all are simulated.
        uncalibrated: those that divide by nothing, because they have not measured a one-worker cell that they need.
        fastest, slowest: the two that differ the most in the step time of a one-worker cell.
        apart_pct: by how much, in percent of the shorter time; 0 if fewer than two hosts have measured the same one.
    """

    names: tuple[str, ...] = ()
    uncalibrated: tuple[str, ...] = ()
    fastest: str = ""
    slowest: str = ""
    apart_pct: float = 0.0

    @property
    def problem(self) -> str | None:
        """Why repetitions of these hosts cannot be summarised together, None if they can."""
        if len(self.names) < 2:
            return None
        if self.apart_pct > MAX_HOSTS_APART_PCT:
            differ = (
                f"{self.slowest} and {self.fastest} differ by {self.apart_pct:.1f} % in the step time of one worker"
            )
            return f"{differ}; the limit is {MAX_HOSTS_APART_PCT:g} %"
        if self.uncalibrated:
            have = "has" if len(self.uncalibrated) == 1 else "have"
            return f"{' and '.join(self.uncalibrated)} {have} no one-worker repetition to be compared by"
        return None


def hosts_of(rows: Iterable[Row]) -> Hosts:
    """The hosts of one run, compared by every one-worker cell that several of them have measured."""
    times = _calibrations(rows)
    names = sorted({host for of_cell in times.values() for host in of_cell})
    missing = {host for of_cell in times.values() for host, seconds in of_cell.items() if seconds is None}
    measured = [sorted((s, host) for host, s in of_cell.items() if s is not None) for of_cell in times.values()]
    ends = [(of_cell[0], of_cell[-1]) for of_cell in measured if len(of_cell) > 1]
    apart = [(100 * (slow / fast - 1), fastest, slowest) for (fast, fastest), (slow, slowest) in ends]
    apart_pct, fastest, slowest = max(apart, key=lambda entry: entry[0], default=(0.0, "", ""))
    return Hosts(tuple(names), tuple(sorted(missing)), fastest, slowest, apart_pct)


def _calibrations(rows: Iterable[Row]) -> dict[Any, dict[str, float | None]]:
    """T(1) in seconds by one-worker cell and host: of the repetitions among these rows, else as the rows have it."""
    rows = [row for row in rows if row["status"] == "ok" and row.get("testbed") != "virtual"]
    one_worker = one_worker_step_times(rows)
    stored: dict[Any, dict[str, list[float]]] = {}
    for row in rows:
        key = (row.get("run"), row.get("base_key"), host_of(row))
        seconds = one_worker.get(key, row.get("calibration_s"))
        of_host = stored.setdefault(row.get("base_key"), {}).setdefault(host_of(row) or NOT_RECORDED, [])
        of_host += [] if seconds is None else [seconds]
    return {
        key: {host: statistics.median(times) if times else None for host, times in by_host.items()}
        for key, by_host in stored.items()
    }


def by_run(rows: Iterable[Row]) -> dict[Any, list[Row]]:
    """Rows of several runs, by run. The hosts of one are not compared with those of another."""
    return by_key((row.get("run"), row) for row in rows)
