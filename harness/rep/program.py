"""Run a user's program on an emulated network, started as torchrun would."""

import json
import math
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from wanbench.harness.emulators.plan import DEVICE, worker_address
from wanbench.harness.errors import HostError
from wanbench.harness.plan.repetition import Command
from wanbench.harness.rep import launcher
from wanbench.harness.spec.launch_lines import PORT, rewritten
from wanbench.harness.testbeds.base import WorkerDied
from wanbench.harness.testbeds.messages import OfProgram
from wanbench.harness.testbeds.player import Player
from wanbench.harness.testbeds.slot import Worker, WorkerSlot
from wanbench.harness.timeline.schedule import Schedule
from wanbench.workloads.process.finished import FinishedProgram

_POLL_S = 0.1
_GRACE_S = 10.0
# The user of a container has neither a home nor a name, which some libraries need.
_OF_A_CONTAINER = {"HOME": "/tmp", "LOGNAME": "worker"}


@dataclass(frozen=True, kw_only=True)
class Program(Command):
    """A program, where it runs, and the files of its processes. `environment` is beyond that of torchrun.

    Attributes:
        sites: site of each worker.
        cwd: working folder of all processes.
        contained: whether it runs with an image's files and environment instead of this process's.
        gpus: GPUs of each worker, as in `Group`.
        schedule: changes from the start of the processes on; None for none.
        group: variables of each worker for the process group `wan`.
        steps: beginning of the paths `<steps>-<rank>` to which processes report their steps.
        hosts: host name of each worker.
        stdin: descriptor of the input of rank 0; None for no input.
        launcher: folder of the agent with which the command, which runs once, starts processes on other workers; None:
            the command runs in every process.
        temporary: parent of the folders for temporary files of each worker; None if each has a /tmp of its own.
    """

    sites: tuple[str, ...]
    cwd: Path
    contained: bool = False
    gpus: tuple[str, ...] = ()
    schedule: Schedule | None = None
    group: tuple[Mapping[str, str], ...] = ()
    steps: Path = Path("steps")
    hosts: tuple[str, ...] = ()
    temporary: Path | None = None
    stdin: int | None = None
    launcher: Path | None = None

    @property
    def workers(self) -> int:
        return len(self.sites)

    def restarts(self, worker: int) -> int:
        """How often the timeline starts the processes of a worker again."""
        return 0 if self.schedule is None else self.schedule.restarts()[worker]

    def ranks(self) -> range:
        """The ranks of all processes that we start."""
        return range(self.workers * self.processes if self.launcher is None else 1)

    def steps_file(self, rank: int) -> Path:
        """The file to which a process reports its steps."""
        return Path(f"{self.steps}-{rank}")

    def imports_file(self, worker: int) -> Path:
        """The file in which the processes of a worker note the modules that they import."""
        return Path(f"{self.steps}-imports-{worker}")

    def temporary_of(self, worker: int) -> Path:
        """The folder for temporary files of a worker on this host."""
        assert self.temporary is not None
        return self.temporary / self.hosts[worker]

    def processes_of(self, worker: int, run_id: str) -> list[dict[str, Any]]:
        """Return the processes of a worker, as `workloads.process.program` takes them."""
        ranks = range(worker * self.processes, (worker + 1) * self.processes)
        return [self._process(worker, rank - ranks.start, run_id) for rank in ranks if rank in self.ranks()]

    def _process(self, worker: int, local: int, run_id: str) -> dict[str, Any]:
        own = self.torchrun_of(worker, local) if self.launcher is None else {}
        argv = rewritten(self.command, self.node(self.workers, worker)) if self.launcher is None else self.command
        env = {**self.environment_of(worker, run_id), **own, **self.environment}
        steps = self.steps_file(worker * self.processes + local)
        return {"argv": argv, "env": env, "steps": str(steps), "hook": self.hook}

    def torchrun_of(self, worker: int, local: int) -> dict[str, str]:
        """Return the variables by which torchrun gives a process its place, and those by which a launcher finds it.

        There is none for torchrun's port, because with one, `torchrun --nnodes 1` would not make a world of its own.
        """
        rank, node = worker * self.processes + local, self.node(self.workers, worker)
        rendezvous = {"NNODES": str(node.nodes), "NODE_RANK": node.rank, "MASTER_ADDR": node.address}
        return {
            **({} if self.processes > 1 else {f"PET_{name}": value for name, value in rendezvous.items()}),
            **rendezvous,
            "RANK": str(rank),
            "LOCAL_RANK": str(local),
            "GROUP_RANK": str(worker),
            "ROLE_RANK": str(rank),
            "ROLE_NAME": "default",
            "WORLD_SIZE": str(self.workers * self.processes),
            "LOCAL_WORLD_SIZE": str(self.processes),
            "GROUP_WORLD_SIZE": str(self.workers),
            "ROLE_WORLD_SIZE": str(self.workers * self.processes),
        }

    def environment_of(self, worker: int, run_id: str) -> dict[str, str]:
        """Return the variables of all processes of a worker: those of torchrun, and its place on the network.

        On this host they are added to this process's environment, in a container to that of the image.
        """
        addresses = [worker_address(rank) for rank in range(self.workers)]
        gpus = () if self.contained else self.gpus  # a container sees no others
        return {
            **(_OF_A_CONTAINER if self.contained else os.environ),
            **({"CUDA_VISIBLE_DEVICES": gpus[worker % len(gpus)]} if gpus else {}),
            "TMPDIR": "/tmp" if self.temporary is None else str(self.temporary_of(worker)),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            "MASTER_ADDR": self.node(self.workers).address,
            "MASTER_PORT": str(PORT),
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": str(self.restarts(worker)),
            "TORCHELASTIC_RUN_ID": run_id,
            "GLOO_SOCKET_IFNAME": DEVICE,
            "NCCL_SOCKET_IFNAME": DEVICE,
            # Otherwise ranks on the same host would communicate through its memory.
            "NCCL_HOSTID": f"{run_id}-{worker}",
            "NCCL_NET": "Socket",
            "TP_SOCKET_IFNAME": DEVICE,
            "WANBENCH_SITE": self.sites[worker],
            "WANBENCH_SITES": json.dumps(self.sites),
            "WANBENCH_HOSTS": ",".join(self.hosts),
            "WANBENCH_ADDRESS": addresses[worker],
            "WANBENCH_ADDRESSES": ",".join(addresses),
            **(self.group[worker] if self.group else {}),
            **self.environment,
        }


@dataclass
class Ended:
    """How the processes of a program ended.

    Attributes:
        code: exit status of the first process that failed, 128 + n after signal n; 0 if none failed.
        failed: rank of that process.
        lasted: duration of each process in seconds.
        late: ranks that were killed because they reached the time limit.
        silence: what to say if workers exchanged next to nothing (`rep.command.silence`).
        idle_s: seconds of a step in which a process used no processor, median over the processes; None if unknown.
        messages: number that all processes have begun to send; None if one does not count them.
        finished: counters of each worker's device and TCP, before and after.
        tcp: TCP settings in force.
        events: changes of the timeline.
        done_ns: when a worker had obeyed a command of the timeline, by its rank and the due time.
    """

    code: int = 0
    failed: int | None = None
    lasted: dict[int, float] = field(default_factory=dict)
    late: tuple[int, ...] = ()
    silence: str | None = None
    idle_s: float | None = None
    messages: int | None = None
    finished: dict[int, FinishedProgram] = field(default_factory=dict)
    tcp: dict[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    done_ns: dict[tuple[int, int], int] = field(default_factory=dict)


@contextmanager
def caught_signals() -> Iterator[list[int]]:
    """Catch SIGINT and SIGTERM, and yield the list of those received so far. Call it from the main thread."""
    received: list[int] = []
    before = {n: signal.signal(n, lambda number, _: received.append(number)) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def play_timeline(
    schedule: Schedule | None,
    slot: WorkerSlot,
    handles: Sequence[Worker],
    ended: Ended,
    say: Callable[[str], None] = lambda line: None,
) -> Iterator[Callable[[], None]]:
    """Yield a function that starts the timeline. `say` prints each change, and `ended.events` lists them at the end.

    Raises:
        EmulatorError: at the end, if a change could not be made.
    """
    if schedule is None:
        yield lambda: None
        return
    player = Player(schedule, slot.emulator, workers=handles, done_ns=ended.done_ns, say=say)
    try:
        yield lambda: player.begin(time.monotonic_ns())
    finally:
        ended.events = [asdict(event) for event in player.stop()]
    player.check()


def start(program: Program, handles: Sequence[Worker], door: Path, outputs: Callable[[int], Sequence[int]]) -> None:
    """Start all processes.

    Args:
        door: the Unix socket of a local rendezvous, in a folder that all workers share.
        outputs: returns the descriptors of a worker: stdout and stderr of its first process, and so on.

    Raises:
        WorkerDied: a worker ended.
    """
    run_id = uuid.uuid4().hex[:8]
    for worker, handle in enumerate(handles):
        specs = program.processes_of(worker, run_id)
        inputs = [] if program.stdin is None or worker else [program.stdin]
        message = {
            "cmd": "program",
            "processes": specs,
            "cwd": str(program.cwd),
            "inherit": program.contained,
            "imports": str(program.imports_file(worker)),
            "stdin": bool(inputs),
            "port": PORT,
            "door": str(door) if program.rendezvous == "local" and program.workers > 1 else None,
            "host": worker == 0,
        }
        if program.launcher is not None:
            agent = launcher.sockets(program.launcher) / program.hosts[worker]
            message |= {"agent": str(agent), "agent_env": program.environment_of(worker, run_id)}
        handle.send(message, [*inputs, *(outputs(worker) if specs else ())])


def watch(
    program: Program,
    slot: WorkerSlot,
    handles: Sequence[Worker],
    ended: Ended,
    looks: Iterator[None],
    received: Sequence[int] = (),
) -> None:
    """Step through `looks` until all workers have ended, also by a signal in `received`, a failure or the time limit.

    Raises: WorkerDied, EmulatorError.
    """
    time_limit, passed_on = time.monotonic() + (program.timeout_s or math.inf), 0
    talks = [OfProgram(worker, program.processes, program.restarts(worker)) for worker in range(program.workers)]
    deadline: float | None = None
    send_signal = partial(_send_signal, handles, ended)
    while len(ended.finished) < program.workers:
        next(looks)
        with suppress(TimeoutError):
            for rank, message in slot.events(program.workers, _POLL_S):
                talks[rank].hear(message)
                if _is_first_failure(program, ended, rank, message):
                    if not passed_on:
                        send_signal(signal.SIGTERM)
                    deadline = time.monotonic() + _GRACE_S
                if program.launcher is not None and set(ended.finished) == {0}:
                    send_signal(signal.SIGTERM)  # to workers that wait for commands
                if len(ended.finished) == program.workers:
                    break
        if len(received) > passed_on:
            passed_on = len(received)
            send_signal(received[-1] if passed_on == 1 else signal.SIGKILL)  # the user pressed Ctrl-C again
            deadline = deadline or time.monotonic() + _GRACE_S
        if time.monotonic() > time_limit and ended.failed is None and not ended.late:
            ended.late = tuple(rank for rank in program.ranks() if rank not in ended.lasted)
            deadline = time_limit
        if deadline is not None and time.monotonic() > deadline:
            send_signal(signal.SIGKILL)
            deadline = float("inf")
    ended.code = 128 + received[0] if received else ended.code


def _send_signal(handles: Sequence[Worker], ended: Ended, number: int) -> None:
    """Let the workers that have not finished signal their processes."""
    for rank, handle in enumerate(handles):
        if rank not in ended.finished:
            with suppress(WorkerDied):
                handle.send({"cmd": "signal", "number": number})


def _is_first_failure(program: Program, ended: Ended, worker: int, message: Mapping[str, Any]) -> bool:
    """Note a worker's message. Return whether it is the first failure.

    A process killed by the timeline has not failed. It has ended unless it is started again.
    """
    first, event = worker * program.processes, message["event"]
    if event == "finished":
        ended.finished[worker] = FinishedProgram.of(message)
    elif event in ("killed", "restarted"):
        ended.done_ns[worker, message["due_ns"]] = message["at_ns"]
        if event == "killed" and not message["again"]:
            ended.lasted.update({first + process: message["seconds"] for process in message["processes"]})
    elif event == "exited":
        ended.lasted[first + message["process"]] = message["seconds"]
        if message["code"] != 0 and ended.failed is None and not ended.late:
            ended.failed = first + message["process"]
            ended.code = message["code"] if message["code"] > 0 else 128 - message["code"]
            return True
    return False


DRIVER = Path("/proc/driver/nvidia/gpus")


def assign_gpus(workers: int, processes: int, driver: Path = DRIVER) -> tuple[str, ...]:
    """Return the GPUs of each worker, e.g. ("0,1", "2,3"): one per process, in turn. Workers share them if too few.

    Args:
        workers: number of workers.
        processes: number of processes per worker.
        driver: folder in which the driver lists its GPUs.

    Raises:
        HostError: this host has no GPU, or fewer than a worker has processes.
    """
    gpus = _usable(driver)
    if not gpus:
        raise HostError(
            f"--device cuda: no NVIDIA GPU on this host ({driver} lists none, or CUDA_VISIBLE_DEVICES hides it); "
            "use --device cpu"
        )
    if len(gpus) < processes:
        raise HostError(
            f"--device cuda: {processes} processes per worker need as many GPUs, and this host has {len(gpus)}; "
            "use a smaller --nproc-per-node"
        )
    numbers = [gpus[n % len(gpus)] for n in range(workers * processes)]
    return tuple(",".join(numbers[n : n + processes]) for n in range(0, len(numbers), processes))


def _usable(driver: Path) -> list[str]:
    count = len(list(driver.glob("*")))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None or count == 0:
        return [str(number) for number in range(count)]
    return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
