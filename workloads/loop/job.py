"""The job that the controller gives to a worker: one repetition of one cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Job:
    """One repetition, as one worker runs it. All fields are plain JSON.

    Attributes:
        rank, world_size: this worker's rank and the number of workers.
        seed: seed of the repetition; every random stream derives from it.
        workload, train, kind, params: the cell, with the keys of the spec.
        collective, channels: how an all-reduce travels.
        bucket_bytes: gradient bucket size before payload scaling (algorithms with buckets only).
        steps, window_begin, window_steps: steps to run, first measured step, and number of measured steps.
        eval_every: steps between evaluations, the first before any step; 0 evaluates only at the end.
        warm_rounds, warm_in_flight: rounds, and messages per round, that warm TCP up before the first step.
        warm_numel: float32 values in each of these messages: as many as the bytes of a message in training.
        warm_spacing_s: seconds between the messages of a round.
        deadline_s: the time in which the others go on without a worker that cannot be reached; None: they wait for it.
        returned: whether this worker was started again, and gets its model from the others.
        timeout_s: time limit of an operation in seconds; a longer one has failed.
        rendezvous: a file in a folder that all workers share; it never crosses the emulated network.
        slow: when, and how much, this worker is slowed down (`workloads.compute.slowdown.Slowdown`).
        told_steps: numbers of steps whose end this worker reports at once.
        paces: by rank, this worker's payload bytes/s to it in a collective and in a message; None is unlimited. Only
            `direct`, `hierarchical` and `ring` read them.
        site_of: by rank, the number of its site; `hierarchical` and algorithms with a server per site read it.
        ring: all ranks in the order of the ring; only `ring` reads it.
        one_shot_bytes: the largest vector that an all-reduce sends whole to every rank.
        datagram_bytes_per_s: maximum rate of datagrams, headers included; None is unlimited.
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
    warm_numel: int
    timeout_s: float
    rendezvous: str
    paces: Sequence[Sequence[float | None]] = ()
    site_of: Sequence[int] = ()
    ring: Sequence[int] = ()
    one_shot_bytes: int = 0
    datagram_bytes_per_s: float | None = None
    slow: Sequence[Mapping[str, Any]] = ()
    told_steps: Sequence[int] = ()
    warm_spacing_s: float = 0.0
    deadline_s: float | None = None
    returned: bool = False

    @property
    def runs_users_code(self) -> bool:
        """Whether its model or its algorithm is a user's."""
        return "model" in self.workload or ":" in self.kind

    def to_json(self) -> dict[str, Any]:
        """Return a plain dict; `Job(**data)` reverses it."""
        return asdict(self)
