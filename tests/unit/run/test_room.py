"""Another repetition starts while the processors have room, by prediction and by measurement."""

from __future__ import annotations

import math

import pytest

from wanbench.harness.plan.load import BUDGET_SHARE, MEMORY_SHARE, Capacity, Load
from wanbench.harness.run.room import SETTLE_S, WINDOW_S, Room, Running, busy_s

TWO_CORES = Capacity(2, math.inf)
LIMIT = 2 * BUDGET_SHARE
LIGHT = Load(60.0, cpus=0.1, emulated=True)


class Processors:
    """A clock, and processors of which some are busy."""

    def __init__(self, host: Capacity = TWO_CORES) -> None:
        self.now = self.worked_s = 0.0
        self.room = Room(host, busy_s=lambda: self.worked_s, clock=lambda: self.now)

    def run(self, seconds: float, busy: float) -> None:
        for _ in range(round(seconds / 0.2)):
            self.now += 0.2
            self.worked_s += 0.2 * busy
            self.room.sample()


def test_the_first_may_always_start():
    assert Room(TWO_CORES).for_another(Load(1.0, math.inf), [])


def test_repetitions_that_start_count_as_predicted():
    host = Processors()
    host.run(10, busy=0.0)
    running = [Running(LIGHT, host.now) for _ in range(round(LIMIT / LIGHT.cpus) - 1)]
    assert host.room.for_another(LIGHT, running)
    assert not host.room.for_another(LIGHT, [*running, Running(LIGHT, host.now)])


@pytest.mark.parametrize(("busy", "starts"), [(LIMIT - 0.15, True), (LIMIT - 0.05, False)])
@pytest.mark.parametrize("predicted", [0.01, 1.9])
def test_those_that_run_count_as_measured(predicted, busy, starts):
    host = Processors()
    host.run(SETTLE_S + 1, busy=busy)
    assert host.room.for_another(LIGHT, [Running(Load(60.0, predicted), 0.0)]) is starts


def test_a_slow_host_needs_more_room_for_the_same_repetition():
    host = Processors(Capacity(2, math.inf, slowness=3.0))
    host.run(10, busy=LIMIT - 0.2)
    assert not host.room.for_another(LIGHT, [Running(LIGHT, 0.0)])


def test_all_that_run_share_the_memory():
    host = Processors(Capacity(2, 1000 / MEMORY_SHARE))
    host.run(20, busy=0.0)
    half = Load(60.0, 0.1, memory_bytes=500)
    assert host.room.for_another(half, [Running(half, 0.0)])
    assert not host.room.for_another(half, [Running(half, 0.0)] * 2)


def test_a_simulation_starts_beside_another_however_busy_the_processors_are():
    host = Processors()
    host.run(10, busy=2.0)
    simulation = Load(60.0, 1.0, simulated=True)
    assert host.room.for_another(simulation, [Running(simulation, 0.0)])
    assert not host.room.for_another(simulation, [Running(simulation, 0.0)] * 2)


def test_what_was_busy_long_ago_does_not_count():
    host = Processors()
    host.run(10, busy=2.0)
    host.run(WINDOW_S + 0.2, busy=0.1)
    assert host.room.for_another(LIGHT, [Running(LIGHT, 0.0)])


def test_fewer_run_side_by_side_after_an_invalid_repetition_and_more_again_after_valid_ones():
    host = Processors()
    host.run(20, busy=0.65 * LIMIT)
    running = [Running(LIGHT, 0.0)]
    assert host.room.for_another(LIGHT, running)
    host.room.judged(1.0, valid=False)
    assert not host.room.for_another(LIGHT, running)
    assert host.room.for_another(Load(1.0, math.inf), [])
    narrow = host.room.host.cpu_limit
    for _ in range(100):
        host.room.judged(1.0, valid=True)
    assert narrow < host.room.host.cpu_limit == LIMIT
    assert host.room.for_another(LIGHT, running)


def test_repetitions_that_are_invalid_together_count_once():
    host = Processors()
    host.run(20, busy=0.0)
    for began in (1.0, 2.0, 19.0):
        host.room.judged(began, valid=False)
    once = host.room.host.cpu_limit
    host.run(20, busy=0.0)
    host.room.judged(21.0, valid=False)
    assert host.room.host.cpu_limit < once < LIMIT


def test_the_kernel_counts_the_seconds_of_busy_processors():
    before = busy_s()
    while busy_s() == before:
        pass
    assert 0 < busy_s() - before < 1


def test_what_runs_is_looked_at_once_however_many_wait():
    host = Processors()
    host.run(10, busy=LIMIT - 0.1)
    looked = []
    host.room._clock = lambda: looked.append(host.now) or host.now
    waiting = [*[Load(60.0, LIMIT, emulated=True)] * 200, Load(60.0, 0.0, emulated=True)]
    assert host.room.first(waiting, [Running(LIGHT, 0.0)]) == 200
    assert len(looked) == 1
