"""Another repetition starts while the processors have room, by prediction and by measurement."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from wanbench.harness.plan.load import MEMORY_SHARE, SETTLE_S, Capacity, Load
from wanbench.harness.run.room import WINDOW_S, Room, Running, busy_s

EIGHT_CORES = Capacity(8, math.inf)
LIMIT = 2.8  # processors of eight that may be busy at first
LIGHT = Load(60.0, cpus=0.1, emulated=True)
MEASURED_S = SETTLE_S + 10


class Processors:
    """A clock, and processors of which some are busy. The first repetition has told what all cost here.

    Args:
        cost: of the first one, as a multiple of its predicted load.
    """

    def __init__(self, host: Capacity = EIGHT_CORES, cost: float | None = 1.0) -> None:
        self.now = self.worked_s = 0.0
        self.room = Room(host, busy_s=lambda: self.worked_s, clock=lambda: self.now)
        if cost is not None:
            self.run(MEASURED_S, cost * LIGHT.cpus, [Running(LIGHT, 0.0)])

    def run(self, seconds: float, busy: float, running: Sequence[Running] = ()) -> None:
        for _ in range(round(seconds / 0.2)):
            self.now += 0.2
            self.worked_s += 0.2 * busy
            self.room.sample(running)


def for_another(room: Room, load: Load, running: Sequence[Running]) -> bool:
    return room.first([load], running) is not None


def test_the_first_may_always_start():
    assert for_another(Room(EIGHT_CORES), Load(1.0, math.inf), [])


def test_no_other_starts_before_the_first_has_told_what_it_costs_here():
    host = Processors(cost=None)
    first = [Running(LIGHT, 0.0)]
    host.run(SETTLE_S + 4, LIGHT.cpus, first)
    assert not for_another(host.room, LIGHT, first)
    host.run(2, LIGHT.cpus, first)
    assert for_another(host.room, LIGHT, first)


def test_repetitions_that_start_count_as_predicted():
    host = Processors()
    host.run(10, busy=0.0)
    running = [Running(Load(60.0, cpus=0.6, emulated=True), host.now)] * 3
    assert for_another(host.room, Load(60.0, cpus=0.9, emulated=True), running)
    assert not for_another(host.room, Load(60.0, cpus=1.1, emulated=True), running)


@pytest.mark.parametrize("cores", [1, 2, 3, 8])
def test_one_repetition_starts_at_a_time_on_each_pair_of_processors(cores):
    host = Processors(Capacity(cores, math.inf))
    host.run(10, busy=0.0)
    free = Load(60.0, cpus=0.0, emulated=True)
    most = max(1, cores // 2)
    assert not for_another(host.room, free, [Running(free, host.now)] * most)
    assert for_another(host.room, free, [Running(free, host.now - SETTLE_S)] * most)


@pytest.mark.parametrize(("busy", "starts"), [(LIMIT - 0.15, True), (LIMIT - 0.05, False)])
@pytest.mark.parametrize("predicted", [0.01, 1.9])
def test_those_that_run_count_as_measured(predicted, busy, starts):
    host = Processors()
    host.run(SETTLE_S + 1, busy=busy)
    assert for_another(host.room, LIGHT, [Running(Load(60.0, predicted), 0.0)]) is starts


@pytest.mark.parametrize("cost", [0.5, 2.0, 8.0])
def test_what_the_first_cost_scales_the_prediction_of_all_others(cost):
    host = Processors(cost=cost)
    assert host.room.host.slowness == pytest.approx(cost)
    host.run(SETTLE_S + 1, busy=LIMIT - 1.0)
    others = [Running(LIGHT, 0.0)]
    assert for_another(host.room, Load(60.0, cpus=0.95 / cost, emulated=True), others)
    assert not for_another(host.room, Load(60.0, cpus=1.05 / cost, emulated=True), others)


def test_a_host_that_becomes_slower_is_noticed():
    host = Processors(cost=1.0)
    host.run(120, 3.0 * LIGHT.cpus, [Running(LIGHT, 0.0)])
    assert host.room.host.slowness == pytest.approx(3.0, rel=0.15)


def test_a_start_and_a_repetition_of_unknown_load_tell_nothing_about_the_cost():
    host = Processors(cost=2.0)
    host.run(SETTLE_S - 1, 8.0, [Running(LIGHT, 0.0), Running(LIGHT, host.now)])
    host.run(30, 8.0, [Running(Load(60.0, 0.1), 0.0)])
    assert host.room.host.slowness == pytest.approx(2.0)


def test_all_that_run_share_the_memory():
    host = Processors(Capacity(8, 1000 / MEMORY_SHARE))
    host.run(20, busy=0.0)
    half = Load(60.0, 0.1, memory_bytes=500)
    assert for_another(host.room, half, [Running(half, 0.0)])
    assert not for_another(host.room, half, [Running(half, 0.0)] * 2)


def test_a_simulation_starts_beside_another_however_busy_the_processors_are():
    host = Processors(Capacity(2, math.inf))
    host.run(10, busy=2.0)
    simulation = Load(60.0, 1.0, simulated=True)
    assert for_another(host.room, simulation, [Running(simulation, 0.0)])
    assert not for_another(host.room, simulation, [Running(simulation, 0.0)] * 2)


def test_what_was_busy_long_ago_does_not_count():
    host = Processors()
    host.run(10, busy=2.0)
    host.run(WINDOW_S + 0.2, busy=0.1)
    assert for_another(host.room, LIGHT, [Running(LIGHT, 0.0)])


def test_fewer_run_side_by_side_after_an_invalid_repetition_and_more_again_after_valid_ones():
    host = Processors()
    host.run(20, busy=0.65 * LIMIT)
    running = [Running(LIGHT, 0.0)]
    assert for_another(host.room, LIGHT, running)
    host.room.judged(host.now, valid=False)
    assert not for_another(host.room, LIGHT, running)
    assert for_another(host.room, Load(1.0, math.inf), [])
    narrow = host.room.host.cpu_limit
    for _ in range(200):
        host.room.judged(host.now, valid=True, strain=0.9)
    assert host.room.host.cpu_limit == narrow  # valid, but near the limits of fidelity
    for _ in range(200):
        host.room.judged(host.now, valid=True, strain=0.2)
    assert narrow < LIMIT < host.room.host.cpu_limit < EIGHT_CORES.cpu_limit
    assert for_another(host.room, LIGHT, running)


def test_repetitions_that_are_invalid_together_count_once():
    host = Processors()
    host.run(20, busy=0.0)
    for began in (1.0, 2.0, host.now - 1.0):
        host.room.judged(began, valid=False)
    once = host.room.host.cpu_limit
    host.run(20, busy=0.0)
    host.room.judged(host.now - 1.0, valid=False)
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
