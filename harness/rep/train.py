"""One repetition of one cell: form the group on zero-delay paths, slow the paths down, train, judge."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wanbench.harness.emulators.base import EmulatorError, EmulatorStats
from wanbench.harness.emulators.plan import Network, build
from wanbench.harness.emulators.probe.measure import probe
from wanbench.harness.emulators.probe.report import TOLERANCES
from wanbench.harness.errors import RepFailed
from wanbench.harness.plan.cell import Cell
from wanbench.harness.plan.law import predict, rep_duration_s
from wanbench.harness.rep.fidelity import HostMeter, judge
from wanbench.harness.rep.player import Event, Player
from wanbench.harness.rep.stragglers import Stragglers, slowdowns
from wanbench.harness.results.row import Measured, cpu_wait_pct, measured_row, trained, udp_overflows
from wanbench.harness.results.store import write_json
from wanbench.harness.testbeds.base import Group, Slot, WorkerDied, WorkerHandle
from wanbench.harness.testbeds.docker.mounts import current
from wanbench.harness.testbeds.virtual.tcp import MAX_TIMEOUT_NS
from wanbench.harness.timeline.changes import has_endless_outage, planned_outage_s
from wanbench.harness.timeline.schedule import Schedule
from wanbench.netprofiles import Size
from wanbench.workloads.loop.job import Job

PATIENCE_S = 60.0  # how long workers may be silent on a busy host, beside what the law predicts
EVENTS = "events.json"
_LOG_TAIL_LINES = 12
_STACK_LINES = 8
_WARM_ROUNDS = 3
_PATIENCE_STEPS = 10
_DEFAULT_STEP_TIME_S = 5.0  # guess for real compute, only to size timeouts


def network_of(cell: Cell) -> Network:
    """The cell's network, ready for an emulator."""
    return build(cell.profile(), cell.placement())


def schedule_of(cell: Cell) -> Schedule:
    """How the cell's network changes."""
    return Schedule(cell.changes, network_of(cell), cell.profile(), cell.rate_scale)


def expected_seconds(cell: Cell) -> float:
    """How long a repetition takes by the law, starting and warming up included."""
    inputs = cell.law_inputs()
    if cell.workload().step_time_s is None:
        return _DEFAULT_STEP_TIME_S * cell.steps
    extra_steps = cell.steps - cell.window_begin - cell.window
    law = predict(inputs)
    warm = (_WARM_ROUNDS + 1) * law.all_reduce_s
    outage_s = planned_outage_s(cell.changes)
    return rep_duration_s(inputs, cell.window + extra_steps) + warm + outage_s + 1.0


def group_of(cell: Cell) -> Group:
    """The workers that the cell needs."""
    containers = cell.config.get("containers", {})
    memory, cpuset = containers.get("memory"), containers.get("cpuset", ())
    return Group(
        workers=cell.workers,
        sites=cell.placement(),
        tcp=tuple(sorted(tcp_of(cell).items())),
        image=containers.get("image"),
        memory_bytes=None if memory is None else Size.parse(memory).bytes,
        cpuset=(cpuset,) if isinstance(cpuset, str) else tuple(cpuset),
        mounts=tuple(map(current, _folders(cell))) if cell.config["testbed"] == "docker" else (),
    )


def _folders(cell: Cell) -> list[Path]:
    """Of this host, that workers read: where a program lies, or a data set."""
    if cell.is_command:
        return [cell.folder.resolve()]
    return [Path(cell.config["workload"]["data"])] if "data" in cell.config["workload"] else []


def jobs(cell: Cell, rep: int, rendezvous: str) -> list[Job]:
    """The job of every rank."""
    config = cell.config
    gloo = config["comm"]["collective"] == "gloo"
    algorithm = cell.algorithm()
    tensors = algorithm.tensors_per_message(float(config["train"].get("momentum", 0.0)))
    steps, window_begin, window = cell.steps, cell.window_begin, cell.window  # once, not for each of a thousand ranks
    slow, told_steps = _slow(cell), _told_steps(cell)
    timeout_s = 2 * patience_s(cell)  # the controller is first to say who hangs
    return [
        Job(
            rank=rank,
            world_size=cell.workers,
            seed=config["seed"] + rep,
            workload=config["workload"],
            train=config["train"],
            kind=config["algorithm"]["kind"],
            params=config["algorithm"]["params"],
            collective=config["comm"]["collective"],
            channels=config["comm"]["channels"],
            bucket_bytes=Size.parse(config["comm"]["buckets"]).bytes,
            steps=steps,
            window_begin=window_begin,
            window_steps=window,
            eval_every=int(config["train"].get("eval_every", 0)),
            # Datagrams have no window to be opened, and TCP makes heavy weather of a path that loses a lot.
            warm_rounds=0 if cell.workers == 1 or algorithm.datagrams else _WARM_ROUNDS,
            # gloo deals operations round-robin over its channels: two on each touch them all.
            warm_in_flight=2 * config["comm"]["channels"] if gloo else 2 * tensors,
            timeout_s=timeout_s,
            rendezvous=rendezvous,
            slow=slow[rank],
            told_steps=told_steps[min(rank, 1)],
            datagram_bytes_per_s=cell.law_inputs().rate_bytes_per_s if algorithm.datagrams else None,
        )
        for rank in range(cell.workers)
    ]


def _slow(cell: Cell) -> Sequence[Sequence[dict[str, Any]]]:
    """When each rank computes how slowly."""
    return slowdowns(cell.changes, network_of(cell), cell.profile()) if cell.changes else [()] * cell.workers


def _told_steps(cell: Cell) -> tuple[Sequence[int], Sequence[int]]:
    """After which steps rank 0 says so at once, and after which the others do."""
    if not cell.changes:
        return (), ()
    return (*schedule_of(cell).awaited_steps, cell.steps), (cell.steps,)


def measure(
    cell: Cell, rep: int, slot: Slot, folder: Path, control: Path, report: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Run the repetition and return its row, judged: status "ok" or "invalid".

    Args:
        folder: takes logs, step rows and network values.
        control: a folder for rendezvous files, shared with the workers.
        report: what the idle probe measured on this network, None without paths.

    Raises:
        RepFailed: a worker died, hung, or reported an error, or the emulator ended.
        HostError: workers or the emulator cannot be started.
    """
    network = network_of(cell)
    player: Player | None = None
    rendezvous = control / f"{cell.key}-{rep}-{time.monotonic_ns()}"
    meter = HostMeter()
    try:
        handles = slot.prepare(group_of(cell))
        player = Player(schedule_of(cell), slot.emulator) if cell.changes else None
        measured = _execute(cell, jobs(cell, rep, str(rendezvous)), slot, handles, folder, meter, player)
        stats = slot.emulator.stats()
    except (WorkerDied, TimeoutError, EmulatorError) as error:
        raise _failed(error, cell, slot, folder, player.cut_off() if player is not None else "") from None
    finally:
        if player is not None:
            player.stop()
        rendezvous.unlink(missing_ok=True)
    host = _host(meter, measured, stats)
    verdict = judge(cell, network, stats, host, report)
    write_steps(folder / "steps.parquet", measured.rows)
    write_messages(folder / "messages.parquet", measured.finished[0]["outcome"]["messages"])
    write_network(folder, network, measured, stats, host, report)
    row = measured_row(cell, rep, trained(cell, measured), measured, stats, host, report, verdict)
    if player is not None:
        row["events"] = write_events(folder, player.as_told(stragglers_of(cell, measured)))
    return row | {"image": slot.image}


def _host(meter: HostMeter, measured: Measured, stats: EmulatorStats) -> dict[str, Any]:
    """What this host did meanwhile."""
    return meter.stop() | {
        "worker_cpu_wait_pct": cpu_wait_pct(measured, stats.seconds),
        "udp_overflows": udp_overflows(measured),
    }


def stragglers_of(cell: Cell, measured: Measured) -> Stragglers:
    """When workers were slow, as they say."""
    slowed_ns = [measured.finished[rank]["outcome"]["slowed_ns"] for rank in range(cell.workers)]
    return Stragglers(cell.changes, network_of(cell), cell.profile(), slowed_ns)


def probe_cell(cell: Cell, slot: Slot) -> dict[str, Any]:
    """What the emulator makes of the cell's network, measured on an idle host. Raises: RepFailed."""
    network = network_of(cell)
    try:
        handles = slot.prepare(group_of(cell))
        slot.emulator.apply(network)
        return probe(network, handles, tolerance=TOLERANCES[slot.emulator.name]).to_json()
    except (WorkerDied, TimeoutError, EmulatorError) as error:
        slot.discard()
        raise RepFailed(f"probe: {str(error) or 'a worker did not answer'}") from None


def _execute(
    cell: Cell,
    todo: list[Job],
    slot: Slot,
    handles: Sequence[WorkerHandle],
    folder: Path,
    meter: HostMeter,
    player: Player | None,
) -> Measured:
    network = network_of(cell)
    measured = Measured(tcp=set_tcp(handles, tcp_of(cell)) if cell.workers > 1 else {})
    slot.emulator.apply(network.without_delay())
    for handle, job in zip(handles, todo, strict=True):
        with (folder / f"worker-{job.rank}.log").open("ab") as log:
            handle.send({"cmd": "job", "job": job.to_json()}, [log.fileno()])
    _await(slot, cell, "joined")
    slot.emulator.apply(network, seed=todo[0].seed)
    for handle in handles:
        handle.send({"cmd": "go"})
    _follow(cell, slot, measured, meter, player)
    for handle in handles:
        handle.send({"cmd": "leave"})
    _await(slot, cell, "left")
    return measured


def _follow(cell: Cell, slot: Slot, measured: Measured, meter: HostMeter, player: Player | None) -> None:
    """Collect what the workers say until all have finished; the network changes from when all are warm."""
    warm: list[int] = []
    trained = 0
    for rank, message in slot.events(cell.workers, patience_s(cell)):
        event = message["event"]
        if event == "warm":
            warm.append(message["now_ns"])
            if len(warm) == cell.workers:
                slot.emulator.stats(reset=True)
                meter.start()
                if player is not None:
                    player.begin(max(warm))
        elif event == "step" and player is not None:
            trained += message["step"] == cell.steps
            if trained == cell.workers:  # what is to come, and to compare replicas, needs everyone
                player.stop()
                slot.emulator.update(network_of(cell))
            elif rank == 0:
                player.ended_step(message["step"], message["now_ns"])
        elif event == "rows":
            measured.rows += message["rows"]
        elif event == "finished":
            measured.finished[rank] = message
            if len(measured.finished) == cell.workers:
                break
        if player is not None:
            player.check()


def patience_s(cell: Cell) -> float:
    """How long the workers of a cell may be silent before they count as hung; they report about every second."""
    law = predict(cell.law_inputs())
    step_time_s = cell.predicted_step_time_s() or cell.workload().step_time_s or _DEFAULT_STEP_TIME_S
    slowest: float = max([1.0, *(change.value for change in cell.changes if change.kind == "slow")])
    # TCP tries again after twice the time each time, so that a stall may be twice as long as the outage.
    outage_s = 2 * planned_outage_s(cell.changes)
    if has_endless_outage(cell.changes):  # it ends with training
        outage_s += min(MAX_TIMEOUT_NS / 1e9, 2 * cell.steps * step_time_s)
    return PATIENCE_S + outage_s + _PATIENCE_STEPS * (slowest * step_time_s + law.all_reduce_s)


def _await(slot: Slot, cell: Cell, event: str) -> None:
    waiting = set(range(cell.workers))
    for rank, message in slot.events(cell.workers, patience_s(cell)):
        if message.get("event") == event:
            waiting.discard(rank)
        if not waiting:
            return


def _failed(error: Exception, cell: Cell, slot: Slot, folder: Path, cut: str) -> RepFailed:
    """Clean up, and say what happened: where they stood if they hung, else what the one at fault printed."""
    if isinstance(error, TimeoutError):
        known = slot.diagnose(cell.workers)
        tail = _where(folder, cell.workers)
        reason = "; ".join(filter(None, [f"hung: no worker said anything for {patience_s(cell):.0f} s", cut, known]))
    else:
        tail = _log(folder, error.rank)[-_LOG_TAIL_LINES:] if isinstance(error, WorkerDied) else []
        reason = "; ".join(filter(None, [str(error), cut]))
    slot.discard()
    return RepFailed(reason, tuple(tail))


def set_tcp(handles: Sequence[WorkerHandle], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Pin TCP in every worker's namespace; returns what is in force, which is equal everywhere."""
    for handle in handles:
        handle.send({"cmd": "tcp", "settings": dict(settings)})
    in_force = [handle.receive(PATIENCE_S)["tcp"] for handle in handles]
    return dict(in_force[0])


def tcp_of(cell: Cell) -> Mapping[str, Any]:
    """Settings of the workers' network namespaces; a lone worker has no use for any."""
    settings: Mapping[str, Any] = cell.config["network"]["tcp"]
    return settings if cell.workers > 1 else {}


def _log(folder: Path, rank: int) -> list[str]:
    """The lines that a worker printed."""
    path = folder / f"worker-{rank}.log"
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return [f"{path.stem}: {line}" for line in lines]


def _where(folder: Path, workers: int) -> list[str]:
    """The stack of the first worker that hung for another reason than waiting for its peers, else of the first."""
    stacks = []
    for rank in range(workers):
        lines = _log(folder, rank)
        begins = [i for i, line in enumerate(lines) if "Stack (most recent call first)" in line]
        stacks += [lines[begins[-1] :][:_STACK_LINES]] if begins else []
    others = [stack for stack in stacks if not any("/workloads/comm/" in line for line in stack)]
    return next(iter(others + stacks), [])


def write_network(
    folder: Path,
    network: Network,
    measured: Measured,
    stats: EmulatorStats,
    host: Mapping[str, Any],
    report: Mapping[str, Any] | None,
) -> None:
    """What the network was meant to be, was found to be, and did."""
    write_json(
        folder / "network.json",
        {
            "configured": network.to_json(),
            "probe": report,
            "emulator": stats.to_json(),
            "tcp": measured.tcp,
            "workers": {str(r): m["counters_after"] for r, m in measured.finished.items()},
            "host": host,
        },
    )


def write_events(folder: Path, events: Sequence[Event]) -> list[dict[str, Any]]:
    """What changed; returns what is written, for the row."""
    data = [event.to_json() for event in events]
    write_json(folder / EVENTS, data)
    return data


def write_steps(path: Path, rows: list[dict[str, Any]]) -> None:
    """One row per rank and step, as Parquet."""
    import pandas as pd

    frame = pd.DataFrame(rows).sort_values(["rank", "step"], ignore_index=True)
    frame.to_parquet(path, index=False)


def write_messages(path: Path, messages: Sequence[Mapping[str, Any]]) -> None:
    """What rank 0 sent and received, one row a message, as Parquet; no file where it sent nothing."""
    import pandas as pd

    if messages:
        frame = pd.DataFrame(messages)
        frame.astype({"ended_ns": "Int64", "collected_ns": "Int64"}).to_parquet(path, index=False)
