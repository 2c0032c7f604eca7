"""What the controller asks of a worker: one repetition of one cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Job:
    """One repetition, as one worker runs it. All fields are plain JSON.

    Attributes:
        rank, world_size: this worker's place.
        seed: of the repetition; every random stream derives from it.
        workload, train, kind, params: the cell, in the spec's words.
        collective, channels: how an all-reduce travels.
        bucket_bytes: gradient bucket size before payload scaling (algorithms with buckets only).
        steps, window_begin, window_steps: steps to run, and which of them are measured.
        eval_every: steps between evaluations, 0 for one at the end.
        warm_rounds, warm_in_flight: how TCP is warmed up before the first step.
        timeout_s: an operation that takes longer has failed.
        rendezvous: a file in a folder that all workers share; it never crosses the emulated network.
        slow: when this worker computes how slowly (`workloads.compute.slowdown.Slowdown`).
        told_steps: counts of steps after which this worker says at once that they have ended.
        datagram_bytes_per_s: how fast datagrams may leave, headers included; None is as fast as they can be taken.
    """

    rank: int
    world_size: int
    seed: int
    workload: Mapping[str, Any]
    train: Mapping[str, Any]
    kind: str
    params: Mapping[str, Any]
    collective: str
    channels: int
    bucket_bytes: int
    steps: int
    window_begin: int
    window_steps: int
    eval_every: int
    warm_rounds: int
    warm_in_flight: int
    timeout_s: float
    rendezvous: str
    datagram_bytes_per_s: float | None = None
    slow: Sequence[Mapping[str, Any]] = ()
    told_steps: Sequence[int] = ()

    def to_json(self) -> dict[str, Any]:
        """A plain dict; `Job(**data)` is the way back."""
        return asdict(self)
