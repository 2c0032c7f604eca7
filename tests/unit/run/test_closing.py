"""The last lines of `wanbench exec`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from wanbench.harness.rep.program import Ended
from wanbench.harness.results.columns import empty
from wanbench.harness.run.attend import last_lines

FOLDER = Path("results/exec-train")
MEGABYTE = 1_000_000


def lines(row: dict[str, Any], ended: Ended | None = None, **cell: Any) -> list[str]:
    ended = ended or Ended(lasted={0: 12.3, 1: 12.0}, idle_s=0.31)
    cell = {"workers": row["workers"], "collective": None, "command": ("python", "train.py"), **cell}
    return [*last_lines(SimpleNamespace(**cell), {**empty(), **row}, ended, FOLDER)]


STEPS = {
    "workers": 2, "wire_bytes": 48 * MEGABYTE, "retransmits": 3, "steps": 21, "steps_total": 24, "step_time_s": 0.412,
    "step_times": "hook", "rtt_max_ms": 100.0,
}  # fmt: skip


def test_duration_bytes_and_packets_sent_again_are_those_of_the_whole_program():
    assert lines(STEPS)[-1] == "12.3 s, 48 MB on the wire, 3 packets sent again; results/exec-train"


def test_a_step_is_described_by_its_time_its_bytes_and_its_wait_in_round_trips():
    assert lines(STEPS)[0] == (
        "24 steps (optimizer.step()): 412 ms each, with 2 MB on the wire; for 310 ms of them no processor is used, 3.1 "
        "times the longest round trip"
    )


def test_whoever_uses_gloo_learns_how_to_go_on():
    assert "--collective direct" in lines(STEPS)[1]
    assert len(lines(STEPS, collective="direct")) == 2


def test_a_program_without_steps_is_timed_as_a_whole():
    assert lines({"workers": 2, "wire_bytes": 48 * MEGABYTE}) == ["12.3 s, 48 MB on the wire; results/exec-train"]


def test_a_lone_worker_sends_nothing_and_waits_for_nobody():
    row = {**STEPS, "workers": 1, "wire_bytes": 0, "retransmits": 0}
    assert lines(row) == [
        "24 steps (optimizer.step()): 412 ms each", "12.3 s, 0 B on the wire; results/exec-train"
    ]  # fmt: skip


def test_a_success_without_an_exchange_ends_with_a_warning_and_a_failure_has_said_it_before():
    ended = Ended(lasted={0: 12.3}, silence="the 2 workers exchanged next to nothing: why")
    quiet = {"workers": 2, "wire_bytes": 3000}
    assert lines({**quiet, "status": "ok"}, ended)[0] == "warning: the 2 workers exchanged next to nothing: why"
    assert len(lines({**quiet, "status": "failed"}, ended)) == 1
