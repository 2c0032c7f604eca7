"""The job that the controller gives to a worker, one repetition of one cell, and what the worker reports of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from wanbench.workloads.comm.meter import JOURNAL_LIMIT, Message
from wanbench.workloads.wire import MANY, Bounds, Count, Number, Whole, Word


@dataclass(frozen=True)
class Job:
    """One repetition, as one worker runs it. All fields are plain JSON, so `Job(**data)` reverses `asdict`.

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
        slow: when, and how much, this worker is slowed down (`workloads.compute.emulated.Slowdown`).
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


@dataclass(frozen=True)
class StepRow:
    """One step. Overhead is what is neither compute nor a stall; the loss is None if no model is trained."""

    rank: Count
    step: Count
    end_ns: Count
    step_time_s: Number
    compute_s: Number
    stall_s: Number
    overhead_s: Number
    payload_bytes: Count
    messages_sent: Count
    loss: Number | None


@dataclass(frozen=True)
class Sums:
    """Sums over steps. Blocks are those of datagram exchanges."""

    compute_ns: Whole
    stall_ns: Whole
    payload_bytes: Count
    messages_sent: Count
    blocks_expected: Count
    blocks_lost: Count

    def __sub__(self, other: Self) -> Self:
        return type(self)(**{name: value - getattr(other, name) for name, value in vars(self).items()})


@dataclass(frozen=True)
class Evaluated:
    """The accuracy of a model after `step` steps, which ended at `end_ns` on the shared clock.

    Attributes:
        accuracy: of the mean of the workers' models, after the last step behind the drain: the model that a user keeps.
        accuracy_before_drain: of rank 0's own model at that step, which lacks the averages in flight.
        accuracy_own_buffers: after the last step, of the mean of the parameters with rank 0's own buffers, such as
            batch norm's running statistics; None for other steps, and for a model without buffers.
    """

    step: Count
    end_ns: Count
    accuracy: Number
    accuracy_before_drain: Number
    accuracy_own_buffers: Number | None = None


@dataclass(frozen=True)
class Regrouped:
    """The change to an epoch of the membership, as one member saw it.

    Attributes:
        epoch: its number. members: its workers. steps: how many steps the model of each had made; None without one.
        step: the step with which all go on.
        begun_ns, ended_ns: from when this member noticed the end of the old epoch until it went on.
        payload_bytes: bytes of vectors that it sent for this.
    """

    epoch: Count
    members: Annotated[list[Count], MANY]
    steps: Annotated[list[Count | None], MANY]
    step: Count
    begun_ns: Count
    ended_ns: Count
    payload_bytes: Count


@dataclass(frozen=True)
class Outcome:
    """The measurements of one worker.

    Attributes:
        window_begin_ns, window_end_ns: begin and end of the measured steps on the shared clock.
        window: sums over the measured steps. total: over all steps and the final drain.
        final_loss: mean local loss over the last tenth of all steps (at least one); None if no model is trained.
        evaluations: for the lowest rank at the end, the accuracy of the model as it was at these times, the last after
            the final drain; empty for other ranks, and if no model is trained.
        ended_ns: when this worker had made the steps of the evaluations, if they are of a mean with its model.
        replica_spread: after the drain, the largest distance of this rank's parameters from the mean over the
            ranks, relative to the largest parameter. Except for rounding, it is 0 for algorithms whose replicas agree.
            None for vectors without payload.
        messages: for rank 0, the messages of its first steps ; empty for other ranks.
        slowed_ns: for each entry of `Job.slow`, times on the shared clock (`compute.emulated.Slowdowns.turned_ns`).
        tcp_windows: the sum of TCP's congestion windows at the begin and end of the measured window, in segments; 0 on
            the simulated clock.
        epochs: the changes of the membership that this worker went through.
        weights: SHA-256 of this worker's parameters after the drain; None if no model is trained.
    """

    window_begin_ns: Count
    window_end_ns: Count
    window: Sums
    total: Sums
    final_loss: Number | None
    replica_spread: Number | None
    evaluations: Annotated[list[Evaluated], MANY]
    ended_ns: Annotated[list[Count], MANY]
    messages: Annotated[list[Message], Bounds(max_length=JOURNAL_LIMIT, fail_fast=True)]
    slowed_ns: Annotated[list[list[Count | None]], MANY]
    tcp_windows: tuple[Count, Count]
    epochs: Annotated[list[Regrouped], MANY]
    weights: Word | None = None
