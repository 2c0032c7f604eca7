"""A relay without a processor for a while: late repetitions are invalid, and `verify` and figures refuse them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from pathlib import Path

import pytest
from cli_session import CARRIED, by_numbers

pytestmark = pytest.mark.timed

RUN = ("run", "spec.toml", "--out", "out", "--no-figures", "--jobs", "1")
ONCE = by_numbers("late", "ssgd = {}", window=30, network=CARRIED)
PAUSE_S, EVERY_S = 0.06, 0.15
PAUSES = 20  # before the next look at all processes, which takes a while on a full host

LATE = re.compile(
    r"(packets (were late by|waited) (?P<ms>\d+\.\d) ms( to be read| and waited \d+\.\d ms to be read)? \(p99\), "
    r"limit 2\.0 ms,|the emulator was behind)"
    r" during (?P<pct>\d+\.\d) % of the time"
)


def interrupted_again_and_again(command):
    """Stop only the relay for 60 ms of every 150 ms, as a host without a free processor would."""
    while command.process.poll() is None:
        relays = command.relays() if command.training("ssgd", rank=1) else []
        for _ in range(PAUSES if relays else 0):
            for number, then_s in ((signal.SIGSTOP, PAUSE_S), (signal.SIGCONT, EVERY_S - PAUSE_S)):
                for pid in relays:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
                time.sleep(then_s)
        time.sleep(EVERY_S - PAUSE_S)


def test_a_late_relay_makes_a_repetition_invalid_twice_and_verify_and_figures_refuse_it(bench):
    bench.spec(ONCE)
    command = bench.start(*RUN)
    interrupted_again_and_again(command)
    result = command.wait()
    assert result.code == 4, result.err
    (row,) = [row for row in bench.rows("late") if row["workers"] == 2]
    assert row["status"] == "invalid"
    late = LATE.match(row["reason"])
    assert late, row["reason"]
    assert late["ms"] is None or float(late["ms"]) > 1e3 * PAUSE_S / 2
    assert float(late["pct"]) > 100 * PAUSE_S / EVERY_S / 2
    assert sorted(path.name for path in bench.out.glob("late/cells/ssgd*/rep-*")) == [
        "rep-0.failed-1",
        "rep-0.failed-2",
    ]
    assert LATE.search(result.err.partition("invalid, will be measured again: ")[2])

    figures = bench.run("figures", "out/late")
    assert (figures.code, figures.out) == (2, "")
    assert figures.last_line == (
        "wanbench: out/late: no cell of more than one worker has a valid result yet; there is nothing to draw"
    )
    verified = bench.run("verify", "out/late")
    assert verified.code == 4
    assert f"{row['cell']}: invalid: {row['reason']}" in verified.out
    assert verified.last_line.endswith("do not publish yet")

    bench.measure("spec.toml", "--no-figures", "--jobs", "1")
    assert {row["status"] for row in bench.rows("late")} == {"ok"}


IN_UML = "User Mode Linux" in Path("/proc/cpuinfo").read_text()
TOO_MUCH = """
schema = 1
name = "flood"

[workload]
params = {params}
tensors = 2
step_time = "50ms"

[network]
{rate}
tcp = {{ congestion = "reno", slow_start_after_idle = false }}

[algorithms]
ssgd = {{}}

[sweep]
workers = [2]
rtt = ["10ms"]

[run]
emulator = "relay"
repeats = 1
window = "20 steps"
"""
OVERLOADED = {
    # No rate is set, so the idle probe passes. A burst of single packets is more than relay and workers carry together:
    # whichever of them waits for the processor says so.
    "the workers": (
        {"params": 200_000, "rate": ""},
        r"threads of a worker waited for a processor|packets (were late by|waited) \d+\.\d ms",
    ),
    # The probe itself finds that one slow processor cannot carry one gigabit per second.
    "the probe": (
        {"params": 1000, "rate": 'rate = "1Gbit"'},
        r"rate \S+ Mbit/s, configured 1000 Mbit/s|too few packets",
    ),
}


@pytest.mark.netem  # the lane that runs in User-Mode Linux
@pytest.mark.skipif(not IN_UML, reason="overloads its host, so it runs on one of its own: make test-kernel")
@pytest.mark.long  # a relay that is late is refused each time
@pytest.mark.parametrize("found_by", OVERLOADED)
def test_a_host_that_is_too_slow_for_the_network_publishes_nothing(bench, found_by, monkeypatch):
    monkeypatch.setenv("WANBENCH_OFFLOAD", "off")
    values, reason = OVERLOADED[found_by]
    bench.spec(TOO_MUCH.format(**values))
    result = bench.run(*RUN)
    assert result.code == 4, result.err
    (row,) = [row for row in bench.rows("flood") if row["workers"] == 2]
    assert row["status"] == "invalid", row["reason"]
    assert re.search(reason, row["reason"]), row["reason"]
