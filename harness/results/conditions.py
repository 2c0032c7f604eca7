"""The columns that say what a repetition is: its cell, its conditions, and the host that measured it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from wanbench.harness.results.column import Column, Status


class Conditions(TypedDict):
    """The first columns of a row."""

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
        Column("Configured round-trip time, median over the pairs of sites in use.", unit="ms", minimum=0),
    ]
    rtt_max_ms: Annotated[
        float | None,
        Column("Configured round-trip time, maximum over the pairs of sites in use.", unit="ms", minimum=0),
    ]
    rate_mbps: Annotated[
        float | None,
        Column(
            "Configured rate, including the payload scale; null if paths differ or are unlimited.",
            unit="Mbit/s",
            above=0,
        ),
    ]
    loss_pct: Annotated[float | None, Column("Configured loss per packet; null if paths differ.", unit="%", minimum=0)]
    loss_burst: Annotated[
        float | None,
        Column(
            "Configured mean number of packets lost in a row; null if each is lost independently or paths differ.",
            unit="packets",
            minimum=1,
        ),
    ]
    jitter_ms: Annotated[
        float | None,
        Column("Configured standard deviation of the one-way delay; null if paths differ.", unit="ms", minimum=0),
    ]
    tcp: Annotated[str | None, Column("TCP congestion control. In emulated cells it was set and read back.")]
    timeline: Annotated[
        str | None, Column("Changes of the network and of workers, with their times.", applies="cells with a timeline")
    ]
    mtbf_s: Annotated[
        float | None,
        Column("Mean time between random failures of a machine; null if it has none.", unit="s", above=0),
    ]
    mttr_s: Annotated[
        float | None,
        Column("Mean time until a machine that failed at random returns.", unit="s", applies="cells with mtbf_s"),
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
            "Whether nobody else emulated with wanbench on this host meanwhile: alone, or unknown where that cannot be "
            "seen. Null in rows of an earlier version, too.",
            applies="emulated cells",
            shown=False,
        ),
    ]
    kernel: Annotated[str | None, Column("Release of its kernel.", applies="emulated cells", shown=False)]
    cpu: Annotated[str | None, Column("Model of its processor.", applies="emulated cells", shown=False)]
