"""Cells on netem through the command line: they agree with the relay."""

from __future__ import annotations

import statistics

import pytest
from cli_session import TOLERANT, patiently

pytestmark = [pytest.mark.netem, pytest.mark.timed]

# One slow processor can carry this easily: bytes / rate is the same.
AGREEMENT = {
    "smoke": [
        *["--set", "workload.payload_scale=0.005", "--set", "workload.step_time=100ms"],
        *["--set", 'sweep.rtt=["40ms"]'],
    ],
    "world4": [
        *["--set", "workload.payload_scale=0.0005", "--set", "sweep.workers=[4]", "--set", "run.repeats=1"],
        *["--only", "algorithm=ssgd", "--only", "algorithm=dts-d4-p4"],
    ],
}  # fmt: skip
TOLERANCE = 0.05


def step_times(bench, experiment):
    """Return the median of all repetitions by algorithm and RTT, then by emulator."""
    cells = {}
    for row in bench.rows(experiment):
        if row["workers"] == 1:
            continue
        by = cells.setdefault((row["algorithm"], row["rtt_ms"]), {})
        by.setdefault(row["emulator"], []).append(row["step_time_s"])
    return {cell: {name: statistics.median(times) for name, times in by.items()} for cell, by in cells.items()}


def agree(by):
    return by["netem"] == pytest.approx(by["relay"], rel=TOLERANCE)


@pytest.mark.parametrize("experiment", ["smoke", pytest.param("world4", marks=pytest.mark.long)])
def test_netem_and_relay_agree_on_step_times(bench, capsys, experiment):
    times = lambda: step_times(bench, experiment)  # noqa: E731
    command = ["run", experiment, *AGREEMENT[experiment], "--set", 'sweep.emulator=["relay", "netem"]']
    command += ["--fresh", "--jobs", "1", "--out", "out", "--no-figures"]
    result = patiently(
        lambda: bench.run(*command, program=TOLERANT),  # late packets count by what they do to the step times
        lambda result: result.code == 4 or (result.code == 0 and not all(map(agree, times().values()))),
    )
    assert result.code == 0, result.err
    cells = times()
    with capsys.disabled():
        print(f"\n{experiment:12} {'rtt ms':>7} {'relay s':>8} {'netem s':>8} {'differ by':>9}")
        for (algorithm, rtt_ms), by in sorted(cells.items()):
            figures = f"{by['relay']:>8.4f} {by['netem']:>8.4f} {by['netem'] / by['relay'] - 1:>+9.1%}"
            print(f"{algorithm:12} {rtt_ms:>7g} {figures}")
    assert len(cells) > 1
    for by in cells.values():
        assert agree(by), by
