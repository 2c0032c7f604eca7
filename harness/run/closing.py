"""The last lines of `wanbench exec`: what was measured, a warning if nothing was, and how to go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from wanbench.harness.plan.cell import CommandCell
from wanbench.harness.rep.program import Ended
from wanbench.harness.results.columns import Row
from wanbench.harness.text import size

_SILENT_BYTES = 2_000  # of a worker: some connections and no messages
_CAUSES = {
    "torchrun": "torchrun makes a world for each worker; name all: torchrun --nnodes $GROUP_WORLD_SIZE --node-rank "
    "$GROUP_RANK --master-addr $MASTER_ADDR --master-port $MASTER_PORT, or run the script itself",
    "mpirun": "mpirun ran on each worker; run it once: wanbench exec --launcher ... -- mpirun",
    "mpiexec": "mpiexec ran on each worker; run it once: wanbench exec --launcher ... -- mpiexec",
}
_COUNTED = {"hook": "optimizer.step()", "step": "wanbench.step()"}


def last_lines(cell: CommandCell, row: Row, ended: Ended, folder: Path) -> Iterator[str]:
    """Yield the lines about a program that has ended. The last one ends with `folder`, that of the run."""
    if ended.code == 0 and not ended.late and (warning := silent(cell, row)) is not None:
        yield warning
    if row["steps_total"] and row["step_time_s"]:
        yield f"{row['steps_total']} steps ({_COUNTED[row['step_times'] or 'hook']}): {_step(row, ended.idle_s)}"
        if cell.workers > 1 and cell.collective is None:
            yield (
                "to go on: --collective direct replaces gloo; a spec with workload.command sweeps "
                "this program (how-to/own-script); wanbench.wrap compares algorithms in it (how-to/own-loop)"
            )
    again = f", {row['retransmits']} packets sent again" if row["retransmits"] else ""
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


def silent(cell: CommandCell, row: Row) -> str | None:
    """A warning if several workers sent next to nothing, which a success hides."""
    if cell.workers == 1 or row["wire_bytes"] is None or row["wire_bytes"] > _SILENT_BYTES * cell.workers:
        return None
    text = f"warning: the {cell.workers} workers exchanged next to nothing, so nothing was measured: "
    for name, cause in _CAUSES.items():
        if name in (Path(argument).name for argument in cell.command):
            return text + cause
    return text + "the program must form its group from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
