"""A player updates an emulator when changes are due, and records the actual times. The test uses short real times."""

from __future__ import annotations

import threading
import time

import pytest
from small_spec import edited, swept

from wanbench.harness.emulators.emulator import EmulatorError
from wanbench.harness.testbeds.player import Player

S = 1_000_000_000
FLAP = 'at = "50ms"\nfor = "50ms"\nwhere = 1\ncut = true\nevery = "100ms"\ntimes = 2'
LATE = 'at = "1h"\n'.replace("1h", "3600s") + "cut = true"
TOO_MUCH = ('at = "5 steps"\nfor = "900s"\ntraffic = "600Mbit"', 'at = "300s"\nfor = "900s"\ntraffic = "600Mbit"')
ON_STEP = 'at = "4 steps"\nwhere = 0\ncut = true'


class Recorder:
    """An emulator that records its updates."""

    def __init__(self, fails: bool = False) -> None:
        self.networks, self.fails, self.changed = [], fails, threading.Event()

    def update(self, network) -> None:
        if self.fails:
            raise EmulatorError("relay: the process was killed by SIGKILL")
        self.networks.append(network)
        self.changed.set()


def player_of(emulator, *entries):
    (cell,) = swept(edited(("[2]", "[3]")) + "".join(f"\n[[timeline]]\n{entry}\n" for entry in entries))
    return Player(cell.repetition(0).schedule, emulator, (), {})


def cut_paths(network):
    return sum(link.loss == 1 for link in network.links.values())


def test_changes_are_made_in_order_and_not_before_they_are_due():
    emulator = Recorder()
    player = player_of(emulator, FLAP, LATE)
    player.begin(time.monotonic_ns())
    deadline = time.monotonic() + 20
    while len(emulator.networks) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    events = player.stop()
    assert [cut_paths(network) for network in emulator.networks] == [4, 0, 4, 0]
    past, pending = events[:4], events[4:]
    assert [event.what for event in past] == ["worker 1: cut off", "worker 1: healed"] * 2
    assert [event.asked_s for event in past] == [0.05, 0.1, 0.15, 0.2]
    assert all(event.actual_s >= event.asked_s for event in past)
    assert [(event.what, event.actual_s, event.at_ns) for event in pending] == [("everywhere: cut off", None, None)]


def test_a_change_waits_for_its_step_and_is_made_once():
    emulator = Recorder()
    player = player_of(emulator, ON_STEP)
    origin = time.monotonic_ns()
    player.begin(origin)
    assert not emulator.changed.wait(0.1)
    player.step_ended(4, time.monotonic_ns())
    assert emulator.changed.wait(20)
    assert player.cut_off().startswith("cut off by the timeline: worker 0 since ")
    assert [event.what for event in player.stop()] == ["worker 0: cut off"]


def test_a_step_reported_before_all_workers_are_warm_counts():
    emulator = Recorder()
    player = player_of(emulator, ON_STEP)
    origin = time.monotonic_ns()
    player.step_ended(4, origin + 1000)
    player.begin(origin)
    assert emulator.changed.wait(20)
    assert [event.asked_s for event in player.stop()] == [1e-6]


def test_a_failure_of_the_emulator_is_raised_by_check():
    player = player_of(Recorder(fails=True), FLAP)
    player.begin(time.monotonic_ns())
    deadline = time.monotonic() + 20
    while player.error is None and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(EmulatorError, match="killed by SIGKILL"):
        player.check()
    player.stop()


def test_a_player_that_never_began_has_only_pending_events():
    player = player_of(Recorder(), FLAP)
    assert player.cut_off() == ""
    assert [event.actual_s for event in player.stop()] == [None] * 4


def test_pending_changes_are_listed_even_if_no_network_can_have_them_together():
    player = player_of(Recorder(), *TOO_MUCH)
    origin = time.monotonic_ns()
    player.step_ended(5, origin + 100 * S)
    player.begin(origin)
    assert [(event.what, event.asked_s) for event in player.stop()] == [
        ("everywhere: traffic 600Mbit", 100),
        ("everywhere: traffic 600Mbit", 300),
        ("everywhere: traffic as before", 1200),
    ]
