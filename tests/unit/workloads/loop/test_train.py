"""The training loop on a clock that only tests advance, so every reported number is predictable."""

from __future__ import annotations

import itertools
import math
import threading
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import ClassVar

import pytest
import torch

from wanbench.workloads.algorithms import registry
from wanbench.workloads.algorithms.base import Algorithm
from wanbench.workloads.comm.local import LocalComm, run_replicas
from wanbench.workloads.comm.meter import MeteredComm
from wanbench.workloads.compute.optim import configured, make
from wanbench.workloads.compute.task import Snapshot, Task
from wanbench.workloads.loop.job import Job, Outcome, StepRow
from wanbench.workloads.loop.train import Hooks, run, train, warm_up

COMPUTE_NS, OVERHEAD_NS, STALL_NS, EVALUATION_NS = 10_000_000, 1_000_000, 7_000_000, 1_000_000_000
NUMEL = 6
BYTES = 4 * NUMEL


class StandingClock:
    """A clock that only `sleep` advances."""

    def __init__(self) -> None:
        self.ns = 5_000_000_000

    def now(self) -> int:
        return self.ns

    def process(self, seconds: float) -> None:
        self.sleep(seconds)

    def sleep(self, seconds: float) -> None:
        self.ns += round(seconds * 1e9)


class TollWork:
    """An operation whose wait takes 7 ms."""

    def __init__(self, work, clock: StandingClock) -> None:
        self.work, self.clock = work, clock

    def done(self) -> bool:
        return self.work.done()

    def wait(self) -> None:
        self.work.wait()
        self.clock.ns += STALL_NS


class TollComm:
    """Replicas in threads: issuing takes no time, waiting does."""

    def __init__(self, comm: LocalComm, clock: StandingClock) -> None:
        self.comm, self.clock = comm, clock
        self.rank, self.world_size = comm.rank, comm.world_size

    def all_reduce(self, vector) -> TollWork:
        return TollWork(self.comm.all_reduce(vector), self.clock)

    def send(self, vector, dst: int) -> TollWork:
        return TollWork(self.comm.send(vector, dst), self.clock)

    def recv(self, vector, src: int) -> TollWork:
        return TollWork(self.comm.recv(vector, src), self.clock)


class ToyTask(Task):
    """A task with 10 ms of compute and 1 ms of overhead per step; the first steps are ten times as slow."""

    compute_ns = 0

    def __init__(self, comm: LocalComm, clock: StandingClock, slow_steps: int, learns: bool, steps: int) -> None:
        self.w = torch.zeros(NUMEL)
        self.comm, self.clock, self.slow_steps, self.learns, self.steps = comm, clock, slow_steps, learns, steps
        self.in_flight: list[int] = []
        self.evaluated: dict[int, list[torch.Tensor]] = {}

    def gradient(self, step, ready=None):
        self.in_flight.append(self.comm.outstanding)
        compute_ns = COMPUTE_NS * (10 if step < self.slow_steps else 1)
        self.clock.ns += compute_ns + OVERHEAD_NS
        self.compute_ns += compute_ns
        g = torch.full((NUMEL,), float(step + self.comm.rank))
        if ready is not None:
            ready(g[NUMEL // 2 :])
            ready(g[: NUMEL // 2])
        return g, (1.0 + step if self.learns else None)

    def snapshot(self, w):
        return Snapshot(w.clone(), [torch.tensor(len(self.in_flight))]) if self.learns else None

    def accuracy(self, model):
        assert len(self.in_flight) == self.steps, "models are evaluated after training"
        self.clock.ns += EVALUATION_NS
        (step,) = model.buffers
        self.evaluated.setdefault(int(step), []).append(model.w)
        return int(step) / 100


@dataclass
class Trained:
    """The results of one rank."""

    outcome: Outcome
    task: ToyTask
    comm: MeteredComm
    rows: list[StepRow] = field(default_factory=list)


JOB = Job(
    rank=0, world_size=2, seed=1, workload={}, train={"lr": 0.1}, kind="dts", params={"delay": 4, "period": 2},
    collective="direct", channels=1, bucket_bytes=1, steps=26, window_begin=6, window_steps=12, eval_every=0,
    warm_rounds=3, warm_in_flight=2, warm_numel=NUMEL, timeout_s=10.0, rendezvous="",
)  # fmt: skip


def trained(learns: bool = True, **changes) -> list[Trained]:
    """Return the results of all ranks, two by default."""
    job = replace(JOB, **changes)

    def body(comm: LocalComm) -> Trained:
        mine, clock = replace(job, rank=comm.rank), StandingClock()
        task = ToyTask(comm, clock, slow_steps=job.window_begin, learns=learns, steps=job.steps)
        metered = MeteredComm(TollComm(comm, clock), clock)
        algorithm, rows = registry.create(job.kind, job.params), []
        outcome = train(
            mine, task, algorithm, make(configured(mine.train, mine.steps)), metered, clock, Hooks(rows.append)
        )
        return Trained(outcome, task, metered, rows)

    return run_replicas(job.world_size, body, timeout_s=10.0)


KINDS = [
    {"kind": "local", "params": {}},
    {"kind": "ssgd", "params": {}},
    {"kind": "sparse", "params": {"period": 3}},
    {"kind": "dts", "params": {"delay": 4, "period": 2}},
]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=[kind["kind"] for kind in KINDS])


# ---------------------------------------------------------------- rows


@every_kind
def test_each_step_has_one_row_whose_parts_add_up_to_the_nanosecond(kind):
    for rank, result in enumerate(trained(**kind)):
        assert [(row.rank, row.step) for row in result.rows] == [(rank, step) for step in range(JOB.steps)]
        end_ns = 5_000_000_000
        for row in result.rows:
            parts = [round(getattr(row, name) * 1e9) for name in ("compute_s", "stall_s", "overhead_s")]
            assert sum(parts) == round(row.step_time_s * 1e9) == row.end_ns - end_ns
            assert parts[2] == OVERHEAD_NS
            end_ns = row.end_ns


def test_a_synchronous_step_stalls_once_for_each_bucket():
    for row in trained(kind="ssgd", params={})[0].rows:
        assert row.stall_s == 2 * STALL_NS / 1e9
        assert (row.messages_sent, row.payload_bytes) == (2, BYTES)


def test_a_delayed_step_stalls_only_when_an_average_is_due():
    rows = trained()[0].rows  # D = 4, p = 2: issued after steps 1, 3, 5, ...; applied after 5, 7, 9, ...
    assert [row.step for row in rows if row.messages_sent] == list(range(1, 26, 2))
    assert [row.step for row in rows if row.stall_s] == list(range(5, 26, 2))
    assert {row.stall_s for row in rows} == {0.0, STALL_NS / 1e9}


def test_an_algorithm_without_buckets_gets_none():
    for rows in (result.rows for result in trained(kind="sparse", params={"period": 1})):
        assert {row.messages_sent for row in rows} == {1}


# ---------------------------------------------------------------- the window


@every_kind
@pytest.mark.parametrize("eval_every", [0, 1, 4])
def test_the_window_is_the_sum_of_its_rows_and_nothing_else(kind, eval_every):
    for result in trained(**kind, eval_every=eval_every):
        outcome, inside = result.outcome, result.rows[6:18]
        assert outcome.window_begin_ns == result.rows[5].end_ns
        assert outcome.window_end_ns == result.rows[17].end_ns
        for key, name in (("compute_ns", "compute_s"), ("stall_ns", "stall_s")):
            assert getattr(outcome.window, key) == sum(round(getattr(row, name) * 1e9) for row in inside)
        for key in ("payload_bytes", "messages_sent"):
            assert getattr(outcome.window, key) == sum(getattr(row, key) for row in inside)


def test_the_slow_steps_that_fill_the_pipeline_are_outside_the_window():
    result = trained()[0]
    assert result.rows[5].compute_s == 10 * COMPUTE_NS / 1e9
    window_ns = result.outcome.window_end_ns - result.outcome.window_begin_ns
    assert window_ns == 12 * (COMPUTE_NS + OVERHEAD_NS) + 6 * STALL_NS
    assert result.outcome.window.compute_ns == 12 * COMPUTE_NS


@pytest.mark.parametrize("eval_every", [0, 1, 3])
def test_the_pipeline_is_full_when_the_window_begins_and_stays_so(eval_every):
    for result in trained(eval_every=eval_every):
        assert result.task.in_flight[6:18] == [2] * 12


# ---------------------------------------------------------------- evaluations


def steps_of(result):
    return [evaluation.step for evaluation in result.outcome.evaluations]


def test_evaluations_are_every_eval_every_steps_and_at_both_ends():
    first, second = trained(eval_every=5)
    assert steps_of(first) == [0, 5, 10, 15, 20, 25, 26]
    assert steps_of(second) == [], "rank 0 evaluates"
    assert steps_of(trained(eval_every=13)[0]) == [0, 13, 26], "the last step is evaluated once"
    assert steps_of(trained()[0]) == [26]


def test_evaluations_have_the_time_at_which_their_step_ended():
    result = trained(eval_every=5)[0]
    ends = [5_000_000_000, *(row.end_ns for row in result.rows)]
    *during, last = result.outcome.evaluations
    assert [evaluation.end_ns for evaluation in during] == [ends[evaluation.step] for evaluation in during]
    assert last.end_ns > ends[-1], "the last follows the drain"
    assert [evaluation.accuracy for evaluation in during] == [step / 100 for step in (0, 5, 10, 15, 20, 25)]


@every_kind
def test_evaluations_change_no_row_and_no_time(kind):
    for with_evaluations, without in zip(trained(**kind, eval_every=1), trained(**kind), strict=True):
        assert with_evaluations.rows == without.rows
        nothing = {"evaluations": [], "ended_ns": []}
        assert replace(with_evaluations.outcome, **nothing) == replace(without.outcome, **nothing)
        assert torch.equal(with_evaluations.task.w, without.task.w)


def test_the_mean_of_the_models_is_evaluated_beside_rank_0_whose_averages_are_in_flight():
    """D = 4, p = 2: after 5 steps each rank has made its own steps, with gradients of step + rank, and no average."""
    mean, own = trained(eval_every=5)[0].task.evaluated[5]
    torch.testing.assert_close(own, torch.full((NUMEL,), -0.1 * sum(range(5))))
    torch.testing.assert_close(mean, torch.full((NUMEL,), -0.1 * sum(step + 0.5 for step in range(5))))


def test_the_model_that_is_kept_is_that_of_all_workers_after_the_drain():
    """D = 4: the last averages arrive in the drain, so rank 0's own model lacks them before."""
    result = trained()[0]
    mean, before_drain, own_buffers = result.task.evaluated[26]
    expected = torch.full((NUMEL,), -0.1 * sum(step + 0.5 for step in range(26)))
    torch.testing.assert_close(mean, expected)
    assert torch.equal(own_buffers, mean)
    assert float((before_drain - expected).abs().min()) > 0.1
    (last,) = result.outcome.evaluations
    assert (last.accuracy, last.accuracy_before_drain, last.accuracy_own_buffers) == (0.26, 0.26, 0.26)


def test_no_peer_waits_while_rank_0_evaluates(monkeypatch):
    """Rank 0's first evaluation ends only when rank 1 has averaged all of its copies."""
    averaged, every = [], threading.Event()
    whole = Snapshot.averaged

    def counted(self, comm):
        mean = whole(self, comm)
        if comm.rank == 1:
            averaged.append(mean)
            if len(averaged) == 3:
                every.set()
        return mean

    def patient(self, model):
        assert every.wait(5), "rank 1 still waits for an average"
        return 0.5

    monkeypatch.setattr(Snapshot, "averaged", counted)
    monkeypatch.setattr(ToyTask, "accuracy", patient)
    assert steps_of(trained(eval_every=13)[0]) == [0, 13, 26]


def test_workers_that_never_communicate_have_no_model_in_common():
    mean, own, _ = trained(kind="local", params={})[0].task.evaluated[26]
    assert torch.equal(mean, own)


@pytest.mark.parametrize("kind", KINDS[1:], ids=[kind["kind"] for kind in KINDS[1:]])
def test_the_digest_of_the_weights_is_that_of_their_bytes_after_the_drain(kind):
    for result in trained(**kind):
        assert result.outcome.weights == sha256(result.task.w.numpy().tobytes()).hexdigest()


def test_diloco_is_evaluated_as_of_its_last_outer_step():
    copies = trained(kind="diloco", params={"period": 4}, eval_every=2)[0].task.evaluated
    for step in (6, 10, 14):
        assert torch.equal(copies[step][1], copies[step - 2][1])
        assert not torch.equal(copies[step][1], copies[step + 2][1])


# ---------------------------------------------------------------- totals and the trained model


@pytest.mark.parametrize(("steps", "messages"), [(26, 13), (25, 13), (24, 12)])
def test_totals_count_every_step_and_the_final_drain(steps, messages):
    for result in trained(steps=steps):
        assert result.outcome.total.messages_sent == messages
        assert result.outcome.total.payload_bytes == messages * BYTES
        assert result.outcome.total.stall_ns == messages * STALL_NS
        in_rows = sum(row.stall_s for row in result.rows) * 1e9
        assert result.outcome.total.stall_ns > in_rows, "the drain waits for what no step has waited for"
        assert result.outcome.total.compute_ns == (6 * 10 + steps - 6) * COMPUTE_NS


def test_the_final_loss_is_the_mean_over_the_last_tenth_of_the_steps():
    assert trained(steps=26)[0].outcome.final_loss == pytest.approx((25 + 26) / 2)
    assert [row.loss for row in trained()[0].rows[:3]] == [1.0, 2.0, 3.0]


def test_without_a_model_there_is_no_loss_and_no_accuracy():
    result = trained(learns=False, eval_every=3)[0]
    assert (result.outcome.final_loss, result.outcome.evaluations, result.outcome.weights) == (None, [], None)
    assert {row.loss for row in result.rows} == {None}


@pytest.mark.parametrize("kind", KINDS[1:], ids=[kind["kind"] for kind in KINDS[1:]])
def test_replicas_that_agree_have_no_spread(kind):
    assert max(result.outcome.replica_spread for result in trained(**kind)) < 1e-5


def test_replicas_that_never_communicate_drift_apart_and_the_spread_shows_it():
    spreads = [result.outcome.replica_spread for result in trained(kind="local", params={})]
    # Gradients are step + rank, so w is -0.1 * (325 + 26 rank): half the difference over the mean.
    assert spreads == pytest.approx([13 / 338, 13 / 338], rel=1e-4)


def test_a_lone_worker_sends_nothing_and_never_stalls_on_a_peer():
    (alone,) = trained(world_size=1, kind="local", params={})
    assert alone.outcome.total.stall_ns == 0
    assert alone.outcome.replica_spread == 0.0
    (synchronous,) = trained(world_size=1, kind="ssgd", params={})
    for result in (alone, synchronous):
        assert result.outcome.total.messages_sent == result.outcome.total.payload_bytes == 0


# ---------------------------------------------------------------- the parts


class Recorder(Algorithm):
    """Records the optimiser's settings at each step."""

    settings: ClassVar[list[tuple[float, float]]] = []

    def gradient(self, g):
        self.settings.append((self.replica.optimizer.lr, self.replica.optimizer.momentum))
        return g


def test_the_optimizer_is_built_from_the_job():
    settings = {"lr": 0.5, "momentum": 0.9, "schedule": "cosine", "warmup_steps": 2}
    numbers = {"params": NUMEL, "step_time": "10ms", "step_cv": 0}
    job = replace(JOB, world_size=1, workload=numbers, train=settings, kind=f"{__name__}:Recorder", params={})
    Recorder.settings.clear()
    run_replicas(1, lambda comm: run(job, comm, StandingClock(), Hooks(lambda row: None)), timeout_s=10.0)
    cosine = [0.25 * (1 + math.cos(math.pi * step / 24)) for step in range(24)]
    assert [lr for lr, _ in Recorder.settings] == pytest.approx([0.25, 0.5, *cosine])
    assert {momentum for _, momentum in Recorder.settings} == {0.9}


def test_the_warm_up_uses_every_channel_several_times_and_synchronizes_all_workers():
    def body(comm: LocalComm) -> tuple[int, int]:
        clock = StandingClock()
        metered = MeteredComm(TollComm(comm, clock), clock)
        warm_up(metered, JOB, torch.zeros(NUMEL), clock)
        return metered.messages_sent, comm.max_outstanding

    assert run_replicas(2, body, timeout_s=10.0) == [(3 * 2 + 1, 2)] * 2


def test_messages_of_the_warm_up_are_as_long_as_those_of_training():
    """A compressed message of a slow network takes seconds; one of the whole model would take an hour."""

    def body(comm: LocalComm) -> int:
        clock = StandingClock()
        metered = MeteredComm(TollComm(comm, clock), clock)
        warm_up(metered, replace(JOB, warm_numel=2), torch.zeros(NUMEL), clock)
        return metered.payload_bytes

    rounds, in_flight = 3, 2
    assert run_replicas(2, body, timeout_s=10.0) == [(rounds * in_flight + 1) * 2 * 4] * 2  # and one to synchronise


def test_the_warm_up_lasts_until_no_window_grows_by_more_than_five_percent():
    def body(comm: LocalComm) -> int:
        clock = StandingClock()
        opened = iter((10, 20, 40, 41, 41, 41, 41, 41) if comm.rank else (40,) * 8)
        metered = MeteredComm(TollComm(comm, clock), clock)
        warm_up(metered, JOB, torch.zeros(NUMEL), clock, lambda: next(opened))
        return metered.messages_sent

    rounds, agreements = 5, 4  # the windows are read after rounds 2 to 5: 10, 20, 40, 41
    assert run_replicas(2, body, timeout_s=10.0) == [rounds * 2 + agreements] * 2


def test_the_warm_up_ends_although_windows_never_stop_growing():
    def body(comm: LocalComm) -> int:
        clock, opened = StandingClock(), itertools.count(1)
        metered = MeteredComm(TollComm(comm, clock), clock)
        warm_up(metered, JOB, torch.zeros(NUMEL), clock, lambda: 2 ** next(opened))
        return metered.messages_sent

    assert run_replicas(2, body, timeout_s=10.0) == [6 * 2 + 5 + 1] * 2


def test_messages_of_the_warm_up_are_spaced():
    def body(comm: LocalComm) -> float:
        clock = StandingClock()
        begin = clock.now()
        spaced = replace(JOB, warm_spacing_s=0.5)
        warm_up(MeteredComm(comm, clock), spaced, torch.zeros(NUMEL), clock)
        return (clock.now() - begin) / 1e9

    assert run_replicas(2, body, timeout_s=10.0) == [3 * 0.5] * 2


def test_the_meter_counts_the_bytes_passed_to_it_and_only_waiting_is_stall():
    def body(comm: LocalComm) -> tuple[int, int, int]:
        clock = StandingClock()
        metered = MeteredComm(TollComm(comm, clock), clock)
        peer = 1 - comm.rank
        works = [metered.all_reduce(torch.zeros(10)), metered.send(torch.zeros(3), peer)]
        works.append(metered.recv(torch.zeros(3), peer))
        clock.sleep(3.0)
        assert metered.stall_ns == 0
        for work in works:
            work.done()
        assert metered.stall_ns == 0
        for work in works:
            work.wait()
            clock.sleep(1.0)
        return metered.messages_sent, metered.payload_bytes, metered.stall_ns

    assert run_replicas(2, body, timeout_s=10.0) == [(2, 4 * 13, 3 * STALL_NS)] * 2
