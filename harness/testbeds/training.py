"""Train with workers that are processes: form the group while no path loses packets, then begin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wanbench.harness.emulators.emulator import EmulatorError
from wanbench.harness.errors import RepFailed
from wanbench.harness.testbeds.base import Trained, Training, WorkerDied
from wanbench.harness.testbeds.messages import OfJob
from wanbench.harness.testbeds.player import Player
from wanbench.workloads.process.finished import FinishedJob

if TYPE_CHECKING:
    from wanbench.harness.testbeds.slot import Worker, WorkerSlot

_ANSWER_S = 60.0  # timeout of an answer on a busy host
_LOG_TAIL_LINES = 12
_STACK_LINES = 8


def train(slot: WorkerSlot, training: Training) -> Trained:
    """Let the workers of a slot train. Raises: RepFailed, HostError."""
    player, schedule = None, training.repetition.schedule
    try:
        handles = slot.prepare(training.group)
        trained, restarts = Trained(tcp=set_tcp(handles, dict(training.group.tcp))), [0] * len(handles)
        if schedule is not None:
            restarts = schedule.restarts()
            player = Player(schedule, slot.emulator, workers=handles, done_ns=trained.done_ns)
        talks = [OfJob(job, restarts[job.rank]) for job in training.repetition.jobs]
        _begin(slot, training, handles, talks)
        _follow(slot, training, talks, trained, player)
        for handle in handles:
            handle.send({"cmd": "leave"})
        trained.changed = {rank: left["changed"] for rank, left in _await(slot, training, talks, "left").items()}
        trained.stats = slot.emulator.stats()
        if trained.stats.changed or any(trained.changed.values()):
            slot.discard()
    except (WorkerDied, TimeoutError, EmulatorError) as error:
        raise _failed(error, slot, training, player.cut_off() if player is not None else "") from None
    finally:
        if player is not None:
            player.stop()
    if player is not None:
        trained.timeline = player.record()
    trained.image = slot.image
    return trained


def set_tcp(handles: Sequence[Worker], settings: Mapping[str, str | float]) -> dict[str, Any]:
    """Set TCP in every worker's namespace. Return the settings in force, which are equal in all of them.

    Nothing is set for a single worker, which does not use TCP.
    """
    if len(handles) == 1:
        return {}
    for handle in handles:
        handle.send({"cmd": "tcp", "settings": dict(settings)})
    in_force = [handle.receive(_ANSWER_S, "tcp")["tcp"] for handle in handles]
    return dict(in_force[0])


def _begin(slot: WorkerSlot, training: Training, handles: Sequence[Worker], talks: Sequence[OfJob]) -> None:
    """Form the group on the network without its losses, then apply them.

    Connections must open at their true delay. TCP remembers the shortest round trip that it has seen: after a start
    without delay it sends bursts of 64 kB for minutes, BBR limits its window, and CUBIC leaves slow start at once.
    """
    slot.emulator.apply(training.repetition.network.without_loss())
    for handle, job in zip(handles, training.repetition.jobs, strict=True):
        with _log(training.folder, job.rank).open("ab") as log:
            handle.send({"cmd": "job", "job": asdict(job)}, [log.fileno()])
    _await(slot, training, talks, "joined")
    slot.emulator.apply(training.repetition.network, seed=training.repetition.jobs[0].seed)
    for handle in handles:
        handle.send({"cmd": "go"})


def _follow(
    slot: WorkerSlot, training: Training, talks: Sequence[OfJob], trained: Trained, player: Player | None
) -> None:
    """Collect the workers' messages until all have finished. The timeline starts when all are warm.

    After the last step, replicas are compared on the unchanged network without its losses: at 30 % loss a TCP
    connection can be silent for minutes.
    """
    workers = Attendance(len(training.repetition.jobs), training.repetition.jobs[0].steps)
    ended = False
    for rank, message in _heard(slot, training, talks):
        event = message["event"]
        workers.note(rank, message)
        if event == "warm" and (begun_ns := workers.begun_ns()) is not None:
            slot.emulator.stats(reset=True)
            training.warm()
            if player is not None:
                player.begin(begun_ns)
        elif event == "step" and rank == 0 and player is not None and not workers.have_trained():
            player.step_ended(message["step"], message["now_ns"])
        elif event == "rows":
            trained.steps.extend(message["rows"])
        elif event == "finished":
            trained.finished[rank] = FinishedJob.of(message)
        elif event in ("killed", "restarted"):
            trained.done_ns[rank, message["due_ns"]] = message["at_ns"]
        if workers.have_finished():
            return
        if workers.have_trained() and not ended:
            ended = True
            if player is not None:
                player.stop()
            slot.emulator.update(training.repetition.network.without_loss())
        if player is not None:
            player.check()


def _heard(slot: WorkerSlot, training: Training, talks: Sequence[OfJob]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the messages of all workers. Raises: as `WorkerSlot.events`, also for one that could not be said now."""
    for rank, message in slot.events(len(training.repetition.jobs), training.repetition.patience_s):
        talks[rank].hear(message)
        yield rank, message


def _await(slot: WorkerSlot, training: Training, talks: Sequence[OfJob], event: str) -> dict[int, dict[str, Any]]:
    """Return the message of this event from each worker."""
    heard: dict[int, dict[str, Any]] = {}
    for rank, message in _heard(slot, training, talks):
        if message.get("event") == event:
            heard[rank] = message
        if len(heard) == len(training.repetition.jobs):
            break
    return heard


def _failed(error: Exception, slot: WorkerSlot, training: Training, cut: str) -> RepFailed:
    """Clean up, and return the failure with a stack if workers hung, else with the output of the failed worker."""
    if isinstance(error, TimeoutError):
        stopped = slot.diagnose(len(training.repetition.jobs))
        tail = _stack(training.folder, len(training.repetition.jobs))
        reasons = [f"hung: no message from any worker for {training.repetition.patience_s:.0f} s", cut, stopped]
    else:
        tail = _lines(training.folder, error.rank)[-_LOG_TAIL_LINES:] if isinstance(error, WorkerDied) else []
        reasons = [str(error), cut]
    slot.discard()
    return RepFailed("; ".join(filter(None, reasons)), tuple(tail))


def _log(folder: Path, rank: int) -> Path:
    return folder / f"worker-{rank}.log"


def _lines(folder: Path, rank: int) -> list[str]:
    """The lines that a worker printed."""
    path = _log(folder, rank)
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return [f"{path.stem}: {line}" for line in lines]


def _stack(folder: Path, workers: int) -> list[str]:
    """The stack of the first worker that does not just wait for its peers, else of the first one."""
    stacks = []
    for rank in range(workers):
        lines = _lines(folder, rank)
        begins = [i for i, line in enumerate(lines) if "Stack (most recent call first)" in line]
        stacks += [lines[begins[-1] :][:_STACK_LINES]] if begins else []
    busy = [stack for stack in stacks if not any("/workloads/comm/" in line for line in stack)]
    return next(iter(busy + stacks), [])


class Attendance:
    """The workers of a repetition. Those that were killed, or have stopped as a minority, are not there.

    Args:
        workers: their number.
        steps: how many they make.
    """

    def __init__(self, workers: int, steps: int) -> None:
        self._steps = steps
        self._here = set(range(workers))
        self._cold = set(range(workers))
        self._warm_ns = 0
        self._trained: set[int] = set()
        self._finished: set[int] = set()
        self._stopped = "all were killed"

    def note(self, rank: int, message: Mapping[str, Any]) -> None:
        """Note what a worker says. Raises: WorkerDied: nobody is left."""
        event = message["event"]
        if event == "warm":
            self._cold.discard(rank)
            self._warm_ns = max(self._warm_ns, message["now_ns"])
        elif event == "restarted":
            self._here.add(rank)
            self._trained.discard(rank)
        elif event == "finished":
            self._finished.add(rank)
        elif event in ("killed", "stopped"):
            self._here.discard(rank)
            self._stopped = message.get("reason", self._stopped)
            if not self._here:
                raise WorkerDied(rank, f": no worker is left: {self._stopped}")
        if event == "finished" or (event == "step" and message["step"] == self._steps):
            self._trained.add(rank)

    def begun_ns(self) -> int | None:
        """When all have begun their first step; None before."""
        return None if self._cold else self._warm_ns

    def have_trained(self) -> bool:
        """Whether all that are there have ended their last step."""
        return self._here <= self._trained

    def have_finished(self) -> bool:
        """Whether all that are there have finished."""
        return self._here <= self._finished
