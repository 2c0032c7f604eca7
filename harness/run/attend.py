"""One repetition of a command while the user watches, and the lines that it ends with: `wanbench exec`."""

import math
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

from wanbench.harness.emulators.emulator import EmulatorError
from wanbench.harness.emulators.impairments import four_digits
from wanbench.harness.errors import CellsFailed, HostError, RepFailed, SpecError
from wanbench.harness.plan.cell import CommandCell
from wanbench.harness.process.priority import processors_awake
from wanbench.harness.rep.command import Attended, run
from wanbench.harness.rep.fidelity import CHANGED
from wanbench.harness.rep.measure import SINGLE_PACKETS, probe_network
from wanbench.harness.rep.program import Ended
from wanbench.harness.rep.sources import code_hash
from wanbench.harness.results.columns import Row
from wanbench.harness.results.store import RunFolder
from wanbench.harness.run.host import control_folder, host_turn
from wanbench.harness.run.manifest import host_facts
from wanbench.harness.run.progress import brief
from wanbench.harness.testbeds import contained, opened
from wanbench.harness.testbeds.base import Slot, WorkerDied
from wanbench.harness.testbeds.slot import WorkerSlot
from wanbench.harness.text import size

_LATE = 124  # as of timeout(1)
_WHERE_IN_A_CONTAINER = "; it must be in the image or in a mounted folder: the current one, or one given with --mount"
_HELD_BACK_PCT = 10.0
_COUNTED = {"hook": "optimizer.step()", "step": "wanbench.step()"}


def attend(cell: CommandCell, attended: Attended, folder: RunFolder) -> int:
    """Run the program to its end, copy its output to ours, and return its status (128 + n after signal n, 124 if late).

    SIGINT and SIGTERM are passed on to all processes. Processes that still run ten seconds later are killed, as are
    all others when one process fails.

    Args:
        folder: receives the row, as in any run.

    Raises:
        Interrupted: while it waits for the host. HostError: the testbed or the emulator does not start.
        CellsFailed: it ended while the program ran. SpecError: the workers cannot find the program.
    """
    say = attended.say
    with (
        control_folder() as control,
        host_turn(say) as turn,
        processors_awake(),
        closing(opened(cell.testbed, control, trains=False)) as testbed,
    ):
        slot = testbed.open_slot(cell.emulator or "")
        part = folder.begin(cell, 0)
        with _explained(cell):
            row, ended, reported = _measured(cell, attended, slot, part, control)
    code = code_hash(row["sources"] or {})
    row |= cast(Row, {"run": folder.name, "code": code, **host_facts(cell), "turn": turn})
    if row["status"] == "ok":
        folder.finish(cell, 0, part, row)
    else:
        folder.fail(cell, 0, part, {"row": row, "log_tail": []})
        new = "; ".join(reason for reason in (row["reason"] or "").split("; ") if reason not in reported)
        if row["status"] == "failed":
            say(f"failed: {new}")
        elif new:
            remedy = "leave its network as it is" if CHANGED in new else "close other programs"
            say(f"warning: `verify` refuses these times: {brief(new)}; {remedy} and run it again")
    for line in last_lines(cell, row, ended, folder.path):
        say(line)
    return _LATE if ended.late else ended.code


@contextmanager
def _explained(cell: CommandCell) -> Iterator[None]:
    """Turn what ends a repetition into what the user can do. Raises: SpecError, HostError, CellsFailed."""
    try:
        yield
    except WorkerDied as error:
        if error.kind == "ProgramError":
            raise SpecError(f"{error}{_WHERE_IN_A_CONTAINER if contained(cell.testbed) else ''}") from None
        if error.kind is not None:
            raise HostError(str(error)) from None
        raise CellsFailed(f"{error}; the program was ended") from None
    except TimeoutError:
        raise HostError("a worker does not answer; run the command again") from None
    except (EmulatorError, RepFailed) as error:
        raise CellsFailed(f"{error}; the program was ended") from None


def _measured(
    cell: CommandCell, attended: Attended, slot: Slot, part: Path, control: Path
) -> tuple[Row, Ended, list[str]]:
    """Probe the idle network, then run the program on it. Also return what was wrong with the network."""
    repetition = cell.repetition(0)
    report = probe_network(repetition, slot, attended.group(repetition, control)) if cell.workers > 1 else None
    for line in differences(report, cell.emulator) if report else ():
        attended.say(line)
    row, ended = run(repetition, cast(WorkerSlot, slot), part, control, report, attended)
    return row, ended, report["reasons"] if report else []


def differences(report: Mapping[str, Any], emulator: str | None) -> Iterator[str]:
    """How the network differs from its profile, a line each: no offload, rates that are not reached, and all else.

    Args:
        report: of the probe. emulator: its name.
    """
    if report.get("offload") is False:
        yield SINGLE_PACKETS
    deviations: list[str] = []
    missed: list[tuple[float, float]] = []
    for row in filter(None, [*report["rows"], report["shared_up"]]):
        rate, measured = row["rate_mbit"], row["measured_rate_mbit"]
        below = rate is not None and measured is not None and measured < rate
        about_rate = [reason for reason in row["reasons"] if below and ": rate " in reason]
        missed += [(measured, rate)] if about_rate else []
        deviations += [reason for reason in row["reasons"] if reason not in about_rate]
    if missed:
        measured, rate = min(missed, key=lambda pair: pair[0] / pair[1])
        yield (
            f"note: {emulator} does not reach the profile's rates on this host ({four_digits(measured)} of "
            f"{four_digits(rate)} Mbit/s), so `verify` refuses this run; for rates that it reaches, use --rate-scale "
            f"{10.0 ** math.floor(math.log10(measured / rate)):g}, or with uniform a lower --rate"
        )
    if deviations:
        yield f"warning: the network is not as configured, so `verify` refuses this run: {brief('; '.join(deviations))}"


def last_lines(cell: CommandCell, row: Row, ended: Ended, folder: Path) -> Iterator[str]:
    """Yield the lines about a program that has ended. The last one ends with `folder`, that of the run."""
    if ended.silence is not None and row["status"] != "failed":  # else it is part of the reason
        yield f"warning: {ended.silence}"
    if row["steps_total"] and row["step_time_s"]:
        yield f"{row['steps_total']} steps ({_COUNTED[row['step_times'] or 'hook']}): {_step(row, ended.idle_s)}"
        if cell.workers > 1 and cell.collective is None:
            yield (
                "to go on: --collective direct replaces gloo; a spec with workload.command sweeps "
                "this program (how-to/own-script); wanbench.wrap compares algorithms in it (how-to/own-loop)"
            )
    again = f", {row['retransmits']} packets sent again" if row["retransmits"] else ""
    if (waiting := held_back(row)) is not None:
        yield waiting
    lasted_s = max(ended.lasted.values(), default=0.0)
    yield f"{lasted_s:.1f} s, {size(row['wire_bytes'] or 0)} on the wire{again}; {folder}"


def _step(row: Row, idle_s: float | None) -> str:
    text = f"{1000 * (row['step_time_s'] or 0):.4g} ms each"
    if row["workers"] == 1:
        return text
    text += f", with {size((row['wire_bytes'] or 0) / (row['steps_total'] or 1))} on the wire"
    if idle_s is None:
        return text
    text += f"; for {1000 * idle_s:.3g} ms of them no processor is used"
    longest_ms = row["rtt_max_ms"]
    return text + (f", {1000 * idle_s / longest_ms:.1f} times the longest round trip" if longest_ms else "")


def held_back(row: Row) -> str | None:
    """A line if connections waited for buffers of stock hosts for a good part of their sending time."""
    window, queue = row["window_limited_pct"] or 0.0, row["buffer_limited_pct"] or 0.0
    if row["host_tcp"] is None or window + queue < _HELD_BACK_PCT:
        return None
    return (
        f"connections waited for the hosts' buffers, not for the network, in {window + queue:.0f} % of their sending "
        f"time: {window:.0f} % for windows of receivers (at most {size(row['window_bytes'] or 0)}), {queue:.0f} % for "
        "send buffers; larger buffers or more connections help (how-to/tcp)"
    )
