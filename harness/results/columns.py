"""THE catalogue of result columns: a row's type, checks, tables, parquet files and reference are made from it.

A column that does not apply to a repetition is null, and so is one that was not measured; nothing is ever filled in.
To add a column, add a line here and measure it where rows are made (`results.row`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict, get_args, get_type_hints

Status = Literal["ok", "invalid", "failed"]


@dataclass(frozen=True)
class Column:
    """What one column means.

    Attributes:
        meaning: a sentence. unit: of the numbers. applies: to which repetitions; the others have null.
        least, above: bounds of its numbers.
        measure: a cell shows its median over repetitions, with least and most.
        shown: part of tables and CSV; the others are in JSON and parquet files alone.
    """

    meaning: str
    unit: str | None = None
    applies: str | None = None
    least: float | None = None
    above: float | None = None
    measure: bool = False
    shown: bool = True

    @property
    def text(self) -> str:
        """The meaning, with what it applies to."""
        return self.meaning if self.applies is None else f"{self.meaning} Of {self.applies} only."


class Row(TypedDict):
    """One repetition of one cell."""

    run: Annotated[str | None, Column("Name of the run.")]
    cell: Annotated[
        str, Column("Name of the cell: algorithm, workers, the other axes, and the beginning of its identity.")
    ]
    rep: Annotated[int, Column("Number of the repetition, from 0.")]
    status: Annotated[Status, Column("ok, invalid (the emulation was not faithful; never counted) or failed.")]
    reason: Annotated[str | None, Column("Why it is invalid or failed.", applies="what is not ok")]
    testbed: Annotated[str, Column("netns, docker or virtual.")]
    emulator: Annotated[str | None, Column("netem or relay.", applies="emulated, several workers")]
    collective: Annotated[str | None, Column("How all-reduces travelled.", applies="training on several workers")]
    channels: Annotated[int | None, Column("Channels of gloo; two operations at a time run on each.", above=0)]
    workload: Annotated[str, Column("A built-in's name, by-numbers-PARAMS, a model's name, or the program's.")]
    payload_scale: Annotated[float | None, Column("Factor on messages, buckets and rates; 1 for a command.", above=0)]
    algorithm: Annotated[str, Column("Label: kind and all parameters that are not at their default.")]
    kind: Annotated[str, Column("The algorithm's kind; one-worker cells have local.")]
    params: Annotated[Mapping[str, Any], Column("Parameters of the algorithm, as given.")]
    workers: Annotated[int, Column("N. Rows with 1 are T(1), which scalability divides.", least=1)]
    profile: Annotated[str | None, Column("The network's name.", applies="several workers")]
    rtt_ms: Annotated[
        float | None,
        Column("Configured round-trip time: the median over the pairs of sites in use.", unit="ms", least=0),
    ]
    rtt_max_ms: Annotated[float | None, Column("The longest of them.", unit="ms", least=0)]
    rate_mbps: Annotated[
        float | None,
        Column(
            "Configured rate, payload scale applied; null where paths differ or are unlimited.", unit="Mbit/s", above=0
        ),
    ]
    loss_pct: Annotated[float | None, Column("Configured loss per packet; null where paths differ.", unit="%", least=0)]
    jitter_ms: Annotated[
        float | None,
        Column("Configured standard deviation of the one-way delay; null where paths differ.", unit="ms", least=0),
    ]
    tcp: Annotated[str | None, Column("TCP's congestion control; emulated, it was set and read back.")]
    timeline: Annotated[str | None, Column("What changes when, in words.", applies="timelines")]
    seed: Annotated[int, Column("Of this repetition.")]
    steps: Annotated[int | None, Column("Measured steps: the window.", above=0)]
    steps_total: Annotated[int | None, Column("All steps, those before and after the window included.", least=0)]
    step_time_s: Annotated[
        float | None,
        Column("Window / steps of the slowest worker. Never a median over steps.", unit="s", above=0, measure=True),
    ]
    compute_s: Annotated[
        float | None,
        Column(
            "Of that, a step's mean computing time on the same worker.",
            unit="s",
            applies="training",
            least=0,
            measure=True,
        ),
    ]
    stall_s: Annotated[
        float | None,
        Column(
            "Of that, a step's mean time in waits for messages.", unit="s", applies="training", least=0, measure=True
        ),
    ]
    overhead_s: Annotated[
        float | None, Column("What is left of step_time_s.", unit="s", applies="training", measure=True)
    ]
    scalability: Annotated[
        float | None, Column("T(1) / T(N): median step time of one worker over step_time_s.", above=0, measure=True)
    ]
    predicted_step_time_s: Annotated[
        float | None,
        Column("What the step-time law expects; null where it does not speak of the cell.", unit="s", above=0),
    ]
    payload_bytes: Annotated[
        int | None, Column("What algorithms sent, of all workers, steps and the drain.", unit="bytes", least=0)
    ]
    wire_bytes: Annotated[
        int | None,
        Column(
            "What left the workers' devices, headers and retransmissions included.",
            unit="bytes",
            applies="emulated",
            least=0,
        ),
    ]
    messages_sent: Annotated[int | None, Column("Operations begun, of all workers, steps and the drain.", least=0)]
    blocks_lost_pct: Annotated[
        float | None,
        Column(
            "Of the datagrams' blocks, those that did not come in time.",
            unit="%",
            applies="datagrams",
            least=0,
            measure=True,
        ),
    ]
    retransmits: Annotated[
        int | None, Column("TCP segments sent again, of all workers.", applies="emulated", least=0, shown=False)
    ]
    tcp_timeouts: Annotated[
        int | None, Column("Retransmission timeouts, of all workers.", applies="emulated", least=0, shown=False)
    ]
    final_loss: Annotated[
        float | None,
        Column("Local loss in the last tenth of the steps, mean over the workers.", applies="learning", measure=True),
    ]
    accuracy: Annotated[
        float | None, Column("Of rank 0 on the test set after the drain.", applies="learning", measure=True)
    ]
    replica_spread: Annotated[
        float | None,
        Column("Largest distance of a replica from the mean of all, over the mean's largest value.", measure=True),
    ]
    time_to_target_s: Annotated[
        float | None,
        Column(
            "From the start of training to the first evaluation at train.target or above.",
            unit="s",
            least=0,
            measure=True,
        ),
    ]
    one_way_error_ms: Annotated[
        float | None,
        Column("Largest error of a one-way delay, configured against measured, over all paths.", unit="ms"),
    ]
    lateness_p99_ms: Annotated[
        float | None,
        Column(
            "How late the emulator delivered packets, 99th percentile; null where it cannot know.", unit="ms", least=0
        ),
    ]
    overdue_pct: Annotated[
        float | None, Column("Share of the time in which a packet was late by more than 1 ms.", unit="%", least=0)
    ]
    host_cpu_pct: Annotated[float | None, Column("Use of all processors of the host meanwhile.", unit="%", least=0)]
    emulator_cpu_us_per_packet: Annotated[
        float | None, Column("Processor time of the emulator for a packet.", unit="µs", least=0, shown=False)
    ]
    image: Annotated[str | None, Column("Digest of the containers' image.", applies="containers")]
    cell_key: Annotated[
        str, Column("Identity of the cell: hash of everything that influences its measurement.", shown=False)
    ]
    base_key: Annotated[str | None, Column("Identity of the one-worker cell that scalability divides by.", shown=False)]
    code: Annotated[str, Column("Hash of the code that measured it.", shown=False)]
    axes: Annotated[Mapping[str, Any], Column("The swept values of this cell.", shown=False)]
    events: Annotated[
        list[dict[str, Any]] | None,
        Column("Changes of the network and of workers: when each was due, and when it came.", shown=False),
    ]
    law_inputs: Annotated[Mapping[str, Any] | None, Column("The numbers that the step-time law read.", shown=False)]
    message_bytes: Annotated[
        int | None, Column("Bytes of one all-reduce, by the law's inputs.", unit="bytes", least=0, shown=False)
    ]
    messages_per_sync: Annotated[int | None, Column("All-reduces of one synchronisation.", least=0, shown=False)]
    step_times: Annotated[
        str | None,
        Column(
            "Of a command, who told its steps: step, hook, or total where nobody did.", applies="commands", shown=False
        ),
    ]
    command: Annotated[
        list[str] | None, Column("Of a command, its arguments as filled in.", applies="commands", shown=False)
    ]
    processes_per_worker: Annotated[int | None, Column("Of a command.", applies="commands", least=0, shown=False)]


_HINTS = get_type_hints(Row, include_extras=True)
COLUMNS: Mapping[str, Column] = {name: get_args(hint)[1] for name, hint in _HINTS.items()}
TYPES: Mapping[str, Any] = {name: get_args(hint)[0] for name, hint in _HINTS.items()}
SHOWN = tuple(name for name, column in COLUMNS.items() if column.shown)
MEASURES = tuple(name for name, column in COLUMNS.items() if column.measure)


def empty() -> dict[str, Any]:
    """A row of which nothing is known."""
    return {name: {} if kind == Mapping[str, Any] else None for name, kind in TYPES.items()}
