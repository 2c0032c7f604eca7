"""Another repetition starts while the processors have room, by prediction and by measurement."""

from __future__ import annotations

import math

import pytest

from wanbench.harness.plan.load import BUDGET_SHARE, Capacity, Load
from wanbench.harness.run.room import SETTLE_S, Room, busy_s

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


def test_the_next_waits_until_the_last_start_can_be_measured():
    host = Processors()
    host.room.started()
    host.run(SETTLE_S - 0.2, busy=0.1)
    assert not host.room.for_another(LIGHT, [LIGHT])
    host.run(0.4, busy=0.1)
    assert host.room.for_another(LIGHT, [LIGHT])


@pytest.mark.parametrize(("busy", "starts"), [(LIMIT - 0.15, True), (LIMIT - 0.05, False)])
def test_the_measured_load_decides_where_it_is_more_than_predicted(busy, starts):
    host = Processors()
    host.run(10, busy=busy)
    assert host.room.for_another(LIGHT, [LIGHT]) is starts


def test_a_slow_host_needs_more_room_for_the_same_repetition():
    host = Processors(Capacity(2, math.inf, slowness=3.0))
    host.run(10, busy=LIMIT - 0.2)
    assert not host.room.for_another(LIGHT, [LIGHT])


def test_the_predicted_load_decides_while_the_others_are_idle():
    host = Processors()
    host.run(10, busy=0.0)
    assert not host.room.for_another(LIGHT, [Load(60.0, cpus=LIMIT)])


def test_what_was_busy_long_ago_does_not_count():
    host = Processors()
    host.run(10, busy=2.0)
    host.run(2, busy=0.1)
    assert host.room.for_another(LIGHT, [LIGHT])


def test_the_kernel_counts_the_seconds_of_busy_processors():
    before = busy_s()
    while busy_s() == before:
        pass
    assert 0 < busy_s() - before < 1
