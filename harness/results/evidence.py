"""The data of a repetition beside its row: learning curves, the first measured steps of rank 0, the measured network.

A run folder keeps them as Parquet and JSON beside each row. A recorded run keeps one small line per repetition in
evidence.jsonl. Both are read in the same way. Data that are missing or cannot be read are None.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from wanbench.harness.results.disk import write_json
from wanbench.harness.results.store import RunFolder, rep_folder

if TYPE_CHECKING:
    import pandas as pd

    from wanbench.harness.emulators.emulator import EmulatorStats
    from wanbench.harness.emulators.plan import EmulatedNetwork
    from wanbench.harness.results.row import Measured
    from wanbench.workloads.comm.meter import Message
    from wanbench.workloads.loop.job import Evaluated

FILE = "evidence.jsonl"
EVALUATIONS = "evaluations.parquet"
CURVE, TRACE, NETWORK, PACE = "curve", "trace", "network", "pace"
_TRACED_STEPS = 48
_PATH_FIELDS = (
    "src", "dst", "one_way_ms", "measured_one_way_ms", "jitter_ms", "measured_jitter_ms", "loss", "rate_mbit",
    "measured_rate_mbit", "reasons",
)  # fmt: skip

Row = Mapping[str, Any]
T = TypeVar("T")


class Evidence:
    """The evidence of all repetitions of one run.

    Args:
        folder: a run folder, or a recorded run. Its path is kept as `path`.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.path = folder.path

    def curve(self, row: Row) -> dict[str, list[Any]] | None:
        """Lists with one entry per evaluation; None if the workload does not train a model.

        They are `step`; `end_s` since the start of training; `accuracy`; `before_drain`, that of rank 0's own model, if
        it was measured; and `loss`, the mean over ranks since the last evaluation, None before the first step.
        """
        return self._of(row, CURVE, _curve)

    def trace(self, row: Row) -> dict[str, Any] | None:
        """The `first` measured step, and the columns of `steps` and `messages` of rank 0, in nanoseconds."""
        return self._of(row, TRACE, _trace)

    def network(self, row: Row) -> list[dict[str, Any]] | None:
        """One entry per directed path: its configuration, and the values that the probe measured, if it ran."""
        return self._of(row, NETWORK, _network)

    def pace(self, row: Row) -> dict[str, dict[str, Any]] | None:
        """`slowest`, the worker that finished last, and `fastest`, the first to finish among the workers with the usual
        number of steps. Each has its `rank`, and for each step `end_s` since the start and `step_time_s`.
        """
        return self._of(row, PACE, _pace)

    @cached_property
    def _recorded(self) -> dict[tuple[str, int, str | None], dict[str, Any]] | None:
        path = self.path / FILE
        if not path.is_file():
            return None
        recorded = {}
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                data = json.loads(line)
                recorded[data["cell"], data["rep"], data.get("host")] = data
            except (ValueError, KeyError, TypeError):
                continue
        return recorded

    def _of(self, row: Row, what: str, read: Callable[[Path, Row], T | None]) -> T | None:
        if self._recorded is not None:
            recorded: T | None = self._recorded.get((row["cell"], row["rep"], row.get("host")), {}).get(what)
            return recorded
        rep = rep_folder(self.path / "cells" / str(row["cell"]), row["rep"], row.get("host"))
        try:
            return read(rep, row)
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, StopIteration):
            return None  # missing, cut short, or from a version that did not write it


def _curve(rep: Path, row: Row) -> dict[str, list[Any]]:
    import pandas as pd

    steps = pd.read_parquet(rep / "steps.parquet", columns=["rank", "step", "end_ns", "step_time_s", "loss"])
    first = steps[(steps["rank"] == 0) & (steps["step"] == 0)].iloc[0]
    begin_ns = float(first["end_ns"] - first["step_time_s"] * 1e9)
    losses = steps.groupby("step")["loss"].mean()
    points = pd.read_parquet(rep / EVALUATIONS).astype({"step": int})
    at = points["step"].tolist()
    spans = [losses[(losses.index >= since) & (losses.index < step)] for since, step in zip([0, *at], at, strict=False)]
    curve: dict[str, list[Any]] = {
        "step": at,
        "end_s": [round((float(end_ns) - begin_ns) / 1e9, 4) for end_ns in points["end_ns"]],
        "accuracy": [round(float(accuracy), 5) for accuracy in points["accuracy"]],
        "loss": [round(float(span.mean()), 5) if len(span) else None for span in spans],
    }
    if "accuracy_before_drain" in points:
        curve["before_drain"] = [round(float(accuracy), 5) for accuracy in points["accuracy_before_drain"]]
    return curve


def _trace(rep: Path, row: Row) -> dict[str, Any] | None:
    import pandas as pd

    messages = pd.read_parquet(rep / "messages.parquet")
    steps = pd.read_parquet(rep / "steps.parquet", columns=["rank", "step", "end_ns", "step_time_s", "compute_s"])
    begin = window_begin(row)
    in_window = (steps["step"] >= begin - 1) & (steps["step"] < begin + _TRACED_STEPS)
    traced = steps[(steps["rank"] == 0) & in_window].sort_values("step")
    since = float(traced["end_ns"].iloc[0] - traced["step_time_s"].iloc[0] * 1e9)
    seen = messages["collected_ns"].isna() | (messages["collected_ns"] >= since)
    messages = messages[seen & (messages["issued_ns"] <= float(traced["end_ns"].iloc[-1]))]
    return {"first": begin, "steps": _columns(traced.drop(columns="rank")), "messages": _columns(messages)}


def window_begin(row: Row) -> int:
    """The first measured step, when the pipeline is full. Raises: KeyError, TypeError: no inputs of the law."""
    from wanbench.harness.plan.law import fill_steps

    return fill_steps(int(row["law_inputs"]["delay"]), int(row["law_inputs"]["period"]))


def _pace(rep: Path, row: Row) -> dict[str, dict[str, Any]]:
    import pandas as pd

    steps = pd.read_parquet(rep / "steps.parquet", columns=["rank", "step", "end_ns", "step_time_s"]).dropna()
    came = next(event for event in row["events"] if event["at_ns"] is not None)
    begin_ns = came["at_ns"] - came["actual_s"] * 1e9
    ends = steps.groupby("rank")["end_ns"].agg(["max", "size"])
    through = ends["max"][
        ends["size"] == ends["size"].mode().max()
    ]  # a worker that was killed for good ended before them
    paces = {}
    for which, rank in (("slowest", ends["max"].idxmax()), ("fastest", through.idxmin())):
        own = steps[steps["rank"] == rank].sort_values("step")
        paces[which] = {
            "rank": int(str(rank)),
            "end_s": [round((end - begin_ns) / 1e9, 4) for end in own["end_ns"].tolist()],
            "step_time_s": [round(seconds, 6) for seconds in own["step_time_s"].tolist()],
        }
    return paces


def _columns(frame: pd.DataFrame) -> dict[str, list[Any]]:
    plain = frame.astype(object).where(frame.notna(), None)
    return {
        str(name): [round(value, 9) if isinstance(value, float) else value for value in plain[name].tolist()]
        for name in plain
    }


def _network(rep: Path, row: Row) -> list[dict[str, Any]] | None:
    data = json.loads((rep / "network.json").read_text(encoding="utf-8"))
    if row["workers"] == 1:
        return None
    if data.get("probe"):
        return [{name: path[name] for name in _PATH_FIELDS} for path in data["probe"]["rows"]]
    configured = data["configured"]
    names = configured["sites"]
    return [
        {
            **dict.fromkeys(_PATH_FIELDS),
            "src": names[item["src"]],
            "dst": names[item["dst"]],
            "one_way_ms": item["link"]["delay_ns"] / 1e6,
            "jitter_ms": item["link"]["jitter_ns"] / 1e6,
            "loss": item["link"]["loss"],
            "rate_mbit": _rate_mbit(configured, item),
            "reasons": [],
        }
        for item in configured["links"]
    ]


def _rate_mbit(configured: Mapping[str, Any], item: Mapping[str, Any]) -> float | None:
    """The rate of the slowest queue between two sites; None if all are unlimited."""
    queues = (configured["up"][item["src"]], item["link"]["queue"], configured["down"][item["dst"]])
    rates = [queue["rate_bytes_per_s"] * 8 / 1e6 for queue in queues if queue["rate_bytes_per_s"] is not None]
    return min(rates, default=None)


def write_network(
    folder: Path,
    network: EmulatedNetwork,
    measured: Measured,
    report: Mapping[str, Any] | None,
    stats: EmulatorStats | None = None,
    host: Mapping[str, Any] | None = None,
) -> None:
    """Write the configured and probed values of the network, and its counters if it was emulated."""
    values = {"configured": network.to_json(), "probe": report, "tcp": measured.tcp}
    if stats is not None:
        counters = {str(rank): vars(message.counters_after) for rank, message in measured.finished.items()}
        values |= {"emulator": asdict(stats), "workers": counters, "host": host}
    write_json(folder / "network.json", values)


def write_events(folder: Path, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Write the changes of the timeline, and return them for the row."""
    write_json(folder / "events.json", events)
    return events


def write_evaluations(folder: Path, evaluations: Sequence[Evaluated]) -> None:
    """Write the evaluations as Parquet, one row per evaluation. Write no file if there are none."""
    import pandas as pd

    if evaluations:
        pd.DataFrame(map(vars, evaluations)).to_parquet(folder / EVALUATIONS, index=False)


def write_messages(folder: Path, messages: Sequence[Message]) -> None:
    """Write the messages of rank 0 as Parquet, one row per message. Write no file if there are none."""
    import pandas as pd

    if messages:
        frame = pd.DataFrame(map(vars, messages))
        frame.astype({"ended_ns": "Int64", "collected_ns": "Int64"}).to_parquet(
            folder / "messages.parquet", index=False
        )
