"""THE catalogue of result columns, from which a row's type, checks, tables, Parquet files and reference are made.

A column that does not apply to a repetition, or that was not measured, is null. Nothing is ever filled in.
To add a column, add a line here, and set its value where rows are made (`results.row`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict, get_args, get_type_hints

Status = Literal["ok", "invalid", "failed"]


@dataclass(frozen=True)
class Column:
    """The description of one column.

    Attributes:
        meaning: a sentence. applies: the repetitions that have it; the others have null.
        minimum, above: inclusive and exclusive lower bound of the numbers.
        measure: a cell shows the median, minimum and maximum over its repetitions.
        shown: part of tables and CSV; the others are only in JSON and Parquet files.
    """

    meaning: str
    applies: str | None = None
    minimum: float | None = None
    above: float | None = None
    measure: bool = False
    shown: bool = True

    @property
    def text(self) -> str:
        """The meaning, and when the column is not null."""
        return self.meaning if self.applies is None else f"{self.meaning} Null except for {self.applies}."


class Row(TypedDict):
    """One repetition of one cell: what it is, then what was measured."""

    run: Annotated[str | None, Column("Name of the run.")]
    cell: Annotated[
        str, Column("Name of the cell: algorithm, workers, other axes, and the first characters of its identity.")
    ]
    rep: Annotated[int, Column("Number of the repetition, from 0.")]
    status: Annotated[
        Status, Column("ok, failed, or invalid: the emulation was not faithful, so no summary counts the repetition.")
    ]
    reason: Annotated[
        str | None, Column("Reason why the repetition failed or is invalid.", applies="repetitions that are not ok")
    ]
    testbed: Annotated[str, Column("Environment of the workers: netns, docker or virtual (simulated).")]
    emulator: Annotated[
        str | None, Column("Emulator of the network: netem or relay.", applies="emulated cells with several workers")
    ]
    collective: Annotated[
        str | None,
        Column(
            "Implementation of all-reduce, such as gloo or direct; of a program: what carries its groups of gloo.",
            applies="training on several workers, and programs whose spec names one",
        ),
    ]
    channels: Annotated[int | None, Column("Channels of gloo, or TCP connections per pair of workers.", above=0)]
    workload: Annotated[str, Column("Name of the built-in workload, model or program, or by-numbers-PARAMS.")]
    payload_scale: Annotated[
        float | None, Column("Factor by which messages, buckets and rates are multiplied; 1 for a command.", above=0)
    ]
    algorithm: Annotated[
        str, Column("Label of the algorithm: its kind, and the parameters that differ from their defaults.")
    ]
    kind: Annotated[str, Column("Kind of the algorithm; local for one-worker cells.")]
    params: Annotated[Mapping[str, Any], Column("Parameters of the algorithm, as given in the spec.")]
    workers: Annotated[
        int, Column("Number of workers N. Rows with 1 measure T(1), the numerator of scalability.", minimum=1)
    ]
    profile: Annotated[str | None, Column("Name of the network profile.", applies="cells with several workers")]
    rtt_ms: Annotated[
        float | None,
        Column("Configured round-trip time, median over the pairs of sites in use.", minimum=0),
    ]
    rtt_max_ms: Annotated[
        float | None,
        Column("Configured round-trip time, maximum over the pairs of sites in use.", minimum=0),
    ]
    rate_mbps: Annotated[
        float | None,
        Column(
            "Configured rate, including the payload scale; null if paths differ or are unlimited.",
            above=0,
        ),
    ]
    loss_pct: Annotated[float | None, Column("Configured loss per packet; null if paths differ.", minimum=0)]
    loss_burst: Annotated[
        float | None,
        Column(
            "Configured mean number of packets lost in a row; null if each is lost independently or paths differ.",
            minimum=1,
        ),
    ]
    jitter_ms: Annotated[
        float | None,
        Column("Configured standard deviation of the one-way delay; null if paths differ.", minimum=0),
    ]
    mtu: Annotated[
        int | None,
        Column("Configured size of the largest IP packet; null for the usual 1500 bytes.", above=0),
    ]
    tcp: Annotated[str | None, Column("TCP congestion control. In emulated cells it was set and read back.")]
    host_tcp: Annotated[
        str | None,
        Column(
            "Buffers of the hosts: a preset and the keys that refine it; null for tuned, which limit no connection."
        ),
    ]
    timeline: Annotated[
        str | None, Column("Changes of the network and of workers, with their times.", applies="cells with a timeline")
    ]
    mtbf_s: Annotated[
        float | None,
        Column("Mean time between random failures of a machine; null if it has none.", above=0),
    ]
    mttr_s: Annotated[
        float | None,
        Column("Mean time until a machine that failed at random returns.", applies="cells with mtbf_s"),
    ]
    seed: Annotated[int, Column("Seed of this repetition.")]
    host: Annotated[
        str | None,
        Column(
            "Host that measured the repetition: its name, and a digest of its machine id. Null in rows of an earlier "
            "version, too.",
            applies="emulated cells",
        ),
    ]
    turn: Annotated[
        str | None,
        Column(
            "alone if no other process emulated with wanbench on this host meanwhile, or unknown if that cannot be "
            "seen. Null in rows of an earlier version, too.",
            applies="emulated cells",
            shown=False,
        ),
    ]
    kernel: Annotated[str | None, Column("Release of the host's kernel.", applies="emulated cells", shown=False)]
    cpu: Annotated[str | None, Column("Model of the host's processor.", applies="emulated cells", shown=False)]
    steps: Annotated[int | None, Column("Number of measured steps, which form the window.", above=0)]
    steps_total: Annotated[
        int | None, Column("Number of all steps, including those before and after the window.", minimum=0)
    ]
    step_time_s: Annotated[
        float | None,
        Column(
            "Duration of the window / steps, of the slowest worker. Never a median over steps.",
            above=0,
            measure=True,
        ),
    ]
    compute_s: Annotated[
        float | None,
        Column(
            "Mean computing time per step on the same worker, part of step_time_s. Not available for commands, and if "
            "every worker was lost at some time.",
            minimum=0,
            measure=True,
        ),
    ]
    stall_s: Annotated[
        float | None,
        Column(
            "Mean time per step spent waiting for messages, part of step_time_s. Not available for commands.",
            minimum=0,
            measure=True,
        ),
    ]
    overhead_s: Annotated[
        float | None,
        Column("Rest of step_time_s after computing and waiting. Not available for commands.", measure=True),
    ]
    fastest_step_time_s: Annotated[
        float | None,
        Column(
            "Duration of the window / steps, of the fastest worker: about step_time_s if all wait for the slowest.",
            applies="cells whose workers have different step times",
            above=0,
            measure=True,
        ),
    ]
    scalability: Annotated[
        float | None,
        Column(
            "T(1) / T(N): calibration_s, divided by step_time_s; T(1) / (N T(N)) with strong scaling. "
            "1 is the ideal. If workers have different step times, T(1) is measured at their harmonic mean. If workers "
            "are lost, T(N) is the time per N steps that count in the final model.",
            above=0,
            measure=True,
        ),
    ]
    calibration_s: Annotated[
        float | None,
        Column(
            "T(1) that scalability is computed from: median step time of one worker on the same host, which rows of "
            "one simulation share. Null if that host has none.",
            above=0,
            measure=True,
        ),
    ]
    scaling: Annotated[
        str | None,
        Column("weak: each worker has its own batch; strong: all share one.", applies="programs", shown=False),
    ]
    predicted_step_time_s: Annotated[
        float | None,
        Column("Step time predicted by the step-time law; null if the law does not cover the cell.", above=0),
    ]
    payload_bytes: Annotated[
        int | None,
        Column(
            "Bytes that the algorithm sent, over all workers and steps and the drain. Divided by payload_scale, they "
            "are those of the workload itself.",
            minimum=0,
        ),
    ]
    wire_bytes: Annotated[
        int | None,
        Column(
            "Bytes that the workers sent, including headers and retransmissions.",
            applies="emulated cells",
            minimum=0,
        ),
    ]
    messages_sent: Annotated[
        int | None,
        Column(
            "Number of operations started, over all workers and steps and the drain; of programs, in torch's groups "
            "until the last step.",
            minimum=0,
        ),
    ]
    blocks_lost_pct: Annotated[
        float | None,
        Column(
            "Share of the blocks sent by datagram that did not arrive in time.",
            applies="algorithms that send datagrams",
            minimum=0,
            measure=True,
        ),
    ]
    retransmits: Annotated[
        int | None,
        Column(
            "Number of TCP segments sent again, over all workers.", applies="emulated cells", minimum=0, shown=False
        ),
    ]
    window_bytes: Annotated[
        int | None, Column("The largest window that a connection's receiver advertised.", minimum=0)
    ]
    in_flight_bytes: Annotated[
        int | None,
        Column("Maximum of the bytes in flight on a connection of a program, read every 0.5 s."),
    ]
    connections_to_a_peer: Annotated[
        int | None, Column("Maximum number of TCP connections between two workers.", minimum=0, shown=False)
    ]
    window_limited_pct: Annotated[
        float | None,
        Column("Share of their sending time in which connections waited for the receiver's window."),
    ]
    buffer_limited_pct: Annotated[
        float | None,
        Column("Share of their sending time in which connections waited for their own send buffer."),
    ]
    tcp_window_change_pct: Annotated[
        float | None,
        Column(
            "Largest change of a worker's TCP congestion windows from begin to end of the measured window. Far from 0, "
            "TCP had not converged.",
            applies="emulated cells of our own training loop",
            shown=False,
        ),
    ]
    final_loss: Annotated[
        float | None,
        Column(
            "Local loss in the last tenth of the steps, mean over the workers.",
            applies="workloads that train a model",
            measure=True,
        ),
    ]
    accuracy: Annotated[
        float | None,
        Column(
            "Accuracy on the test set of the mean of the workers' models, after the drain; with a server or losses of "
            "workers, of rank 0's.",
            applies="workloads that train a model",
            measure=True,
        ),
    ]
    accuracy_before_drain: Annotated[
        float | None,
        Column(
            "Accuracy of rank 0's own model after the last step, which lacks the averages in flight.",
            applies="workloads that train a model",
            shown=False,
        ),
    ]
    accuracy_own_buffers: Annotated[
        float | None,
        Column(
            "Accuracy as in `accuracy`, but with rank 0's own buffers, such as batch norm's running statistics.",
            applies="models with buffers",
            shown=False,
        ),
    ]
    weights: Annotated[
        str | None,
        Column(
            "SHA-256 of rank 0's parameters after the drain. Weights that are equal bit by bit have equal digests.",
            applies="workloads that train a model",
            shown=False,
        ),
    ]
    replica_spread: Annotated[
        float | None,
        Column(
            "Largest distance of a replica from the mean of all replicas, relative to the largest value of the mean.",
            measure=True,
        ),
    ]
    time_to_target_s: Annotated[
        float | None,
        Column(
            "Time from the start of training until the accuracy crosses train.target, interpolated linearly "
            "between the evaluations before and after; null if it never does. A mean of the workers' models exists "
            "once the last of them has made the step.",
            applies="workloads that train a model",
            minimum=0,
            measure=True,
        ),
    ]
    steps_to_target: Annotated[
        float | None,
        Column(
            "Number of steps until time_to_target_s, interpolated likewise.",
            applies="workloads that train a model",
            minimum=0,
            measure=True,
        ),
    ]
    goodput: Annotated[
        float | None,
        Column(
            "Steps of all workers that count in the final model, as a share of those that the same cell without losses "
            "makes in the same time; null if the run has no such cell.",
            applies="cells that lose workers",
            minimum=0,
            measure=True,
        ),
    ]
    counted_steps: Annotated[
        int | None,
        Column(
            "Steps of all workers whose gradients are in the final model.",
            applies="cells that lose workers",
            minimum=0,
        ),
    ]
    lost_steps: Annotated[
        int | None,
        Column(
            "Steps that are not in counted_steps, as far as they were reported before their worker was lost.",
            applies="cells that lose workers",
            minimum=0,
        ),
    ]
    membership_changes: Annotated[
        int | None,
        Column("Number of times that workers were lost or returned.", applies="cells that lose workers", minimum=0),
    ]
    recovery_s: Annotated[
        float | None,
        Column(
            "Time in which training stood still until the workers agreed on a model again.",
            applies="cells that lose workers",
            minimum=0,
            measure=True,
        ),
    ]
    recovery_bytes: Annotated[
        int | None,
        Column(
            "Bytes that the algorithm's workers sent to agree on a model again, part of payload_bytes.",
            applies="cells that lose workers",
            minimum=0,
        ),
    ]
    one_way_error_ms: Annotated[
        float | None,
        Column("Largest difference between configured and measured one-way delay, over all paths."),
    ]
    lateness_p99_ms: Annotated[
        float | None,
        Column(
            "Delay of packets beyond their due time in the emulator, 99th percentile; null if it is not known.",
            minimum=0,
        ),
    ]
    overdue_pct: Annotated[
        float | None, Column("Share of the time in which a packet was late by more than 1 ms.", minimum=0)
    ]
    host_cpu_pct: Annotated[float | None, Column("Use of all processors of the host during the repetition.", minimum=0)]
    paused_pct: Annotated[
        float | None,
        Column(
            "Time in which a worker, its program, the emulator or the controller did not run, as a share of the "
            "window.",
            applies="emulated cells",
            minimum=0,
        ),
    ]
    packets_per_segment: Annotated[
        float | None,
        Column(
            "Packets that the emulator moved together, on average; 1 if the kernel refused segmentation offload.",
            applies="cells on the relay",
            minimum=1,
            shown=False,
        ),
    ]
    image: Annotated[str | None, Column("Digest of the container image.", applies="cells that run in containers")]
    cell_key: Annotated[
        str, Column("Identity of the cell: a hash of everything that influences its results.", shown=False)
    ]
    base_key: Annotated[str | None, Column("Identity of the one-worker cell that gives T(1).", shown=False)]
    undisturbed_key: Annotated[
        str | None,
        Column("Identity of the same cell without lost workers.", applies="cells that lose workers", shown=False),
    ]
    code: Annotated[str, Column("Hash of the code that measured the repetition.", shown=False)]
    sources: Annotated[
        Mapping[str, Any] | None,
        Column("Digests, by name, of wanbench and of each file of the user that ran.", shown=False),
    ]
    evidence: Annotated[
        Mapping[str, Any] | None,
        Column("SHA-256 of the files beside the row, by name.", applies="repetitions in a run's folder", shown=False),
    ]
    axes: Annotated[Mapping[str, Any], Column("Swept values of this cell.", shown=False)]
    events: Annotated[
        list[dict[str, Any]] | None,
        Column("Changes of the network and of workers, with the due and the actual time of each.", shown=False),
    ]
    law_inputs: Annotated[Mapping[str, Any] | None, Column("Inputs of the step-time law.", shown=False)]
    message_bytes: Annotated[
        int | None, Column("Size of one all-reduce, from the inputs of the law.", minimum=0, shown=False)
    ]
    messages_per_sync: Annotated[
        int | None, Column("Number of all-reduces per synchronisation.", minimum=0, shown=False)
    ]
    step_times: Annotated[
        str | None,
        Column(
            "Source of the reported steps: step, hook, or total if the command reported none.",
            applies="commands",
            shown=False,
        ),
    ]
    command: Annotated[
        list[str] | None,
        Column("Arguments of the command, with placeholders filled in.", applies="commands", shown=False),
    ]


_HINTS = get_type_hints(Row, include_extras=True)
COLUMNS: Mapping[str, Column] = {name: get_args(hint)[1] for name, hint in _HINTS.items()}
TYPES: Mapping[str, Any] = {name: get_args(hint)[0] for name, hint in _HINTS.items()}
SHOWN = tuple(name for name, column in COLUMNS.items() if column.shown)
MEASURES = tuple(name for name, column in COLUMNS.items() if column.measure)
MORE_IS_BETTER = frozenset({"scalability", "accuracy", "goodput"})  # of the measures


def empty() -> dict[str, Any]:
    """A row without any known value."""
    return {name: {} if kind == Mapping[str, Any] else None for name, kind in TYPES.items()}
