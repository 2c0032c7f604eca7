"""Workers that are killed, stopped and started again, each a process with its own address, over real TCP."""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from dataclasses import asdict

import pytest
from members import members, until

from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.membership import Minority
from wanbench.workloads.process.regrouping import PORT, Join


def agreed(group, living, steps=7, epoch=1):
    """Let the living ask for the next epoch, and check that all have the same one, in which they can communicate."""
    views = group.do("regroup", steps, by=living)
    assert views == [(epoch, living, [steps] * len(living))] * len(living)
    mean = [sum(living) / len(living)] * len(living)
    assert group.do("mean", by=living) == pytest.approx(mean)


@pytest.mark.parametrize("dead", [[3], [0], [1, 2], [0, 1, 2]], ids=["the highest", "the lowest", "two", "all but one"])
def test_the_living_go_on_without_those_that_are_killed(tmp_path, dead):
    with members(4, tmp_path) as group:
        assert not any(group.do("changes"))
        for rank in dead:
            group[rank].kill()
        living = [rank for rank in range(4) if rank not in dead]
        errors = group.do("mean", by=living)
        assert all(isinstance(error, CommError) for error in errors)
        assert group.do("changes", by=living) == [True] * len(living)
        agreed(group, living)
        assert not any(group.do("changes", by=living))


def test_one_after_another_can_be_lost(tmp_path):
    with members(4, tmp_path) as group:
        living = [0, 1, 2, 3]
        for epoch, dead in enumerate([2, 0, 3], 1):
            group[dead].kill()
            living.remove(dead)
            agreed(group, living, epoch=epoch)


@pytest.mark.parametrize("also", [1, 0, 3], ids=["a member", "the one that decides", "the highest"])
def test_one_that_is_killed_while_the_others_wait_for_it_is_not_waited_for(tmp_path, also):
    with members(5, tmp_path) as group:
        group[2].kill()
        living = [rank for rank in [0, 1, 3, 4] if rank != also]
        for rank in living:
            group[rank].begin("regroup", 7)
        time.sleep(0.3)  # they know that it is alive, and wait for it
        group[also].kill()
        assert [group[rank].end() for rank in living] == [(1, living, [7, 7, 7])] * 3
        assert group.do("mean", by=living) == pytest.approx([sum(living) / 3] * 3)


@pytest.mark.parametrize("rank", [0, 2])
def test_one_that_returns_ends_the_epoch_of_the_others_and_brings_no_model(tmp_path, rank):
    with members(3, tmp_path) as group:
        group[rank].kill()
        living = [each for each in range(3) if each != rank]
        agreed(group, living)
        group[rank].start()
        group[rank].begin("regroup", None)
        for each in living:
            until(lambda each=each: group[each].do("changes"))
        for each in living:
            group[each].begin("regroup", 9)
        steps = [None if each == rank else 9 for each in range(3)]
        assert [group[each].end() for each in range(3)] == [(2, [0, 1, 2], steps)] * 3
        assert group.do("mean") == [1.0] * 3
        assert not any(group.do("changes"))


def test_members_agree_although_they_ask_at_different_times_and_have_made_different_numbers_of_steps(tmp_path):
    with members(3, tmp_path) as group:
        for rank in (2, 0, 1):
            group[rank].begin("regroup", 10 + rank)
            time.sleep(0.2)
        assert [group[rank].end() for rank in range(3)] == [(1, [0, 1, 2], [10, 11, 12])] * 3


def test_one_that_asks_makes_the_others_ask_too(tmp_path):
    with members(3, tmp_path) as group:
        group[1].begin("regroup", 4)
        until(lambda: all(group.do("changes", by=[0, 2])))
        assert all(isinstance(error, CommError) for error in group.do("mean", by=[0, 2]))


def test_the_larger_side_goes_on_and_the_smaller_side_stops_in_time(tmp_path):
    """Processes that are stopped answer nobody, as if they were cut off."""
    with members(5, tmp_path, deadline_s=2.0) as group:
        for rank in (0, 1):
            group[rank].stop()
        began = time.monotonic()
        agreed(group, [2, 3, 4])
        assert 2.0 < time.monotonic() - began < 12.0
        for rank in (2, 3, 4):
            group[rank].stop()
        for rank in (0, 1):
            group[rank].go_on()
        began = time.monotonic()
        stopped = group.do("regroup", 7, by=[0, 1])
        assert time.monotonic() - began < 12.0
        assert all(isinstance(error, Minority) for error in stopped)
        assert {str(error) for error in stopped} == {
            "ranks [0, 1] cannot reach ranks [2, 3, 4], so they may be the smaller side"
        }


def test_neither_half_goes_on(tmp_path):
    with members(4, tmp_path, deadline_s=1.0) as group:
        for rank in (0, 3):
            group[rank].stop()
        stopped = group.do("regroup", 7, by=[1, 2])
        assert [type(error) for error in stopped] == [Minority, Minority]


def test_one_that_returns_when_the_others_have_finished_stops(tmp_path):
    with members(3, tmp_path) as group:
        group[1].kill()
        agreed(group, [0, 2])
        group.do("close", by=[0, 2])
        group[1].start()
        stopped = group[1].do("regroup", None)
        assert isinstance(stopped, Minority)
        assert str(stopped) == "ranks [1] have returned, and nobody is left who has a model"


def test_nothing_is_left_after_many_epochs(tmp_path):
    with members(3, tmp_path) as group:
        for epoch in range(1, 6):
            agreed(group, [0, 1, 2], epoch=epoch)
        for before, after in group.do("close"):
            assert before == after


def test_strangers_at_the_port_are_hung_up_on_and_change_nothing(tmp_path):
    other = json.dumps(asdict(Join("another job", 1, 0, 0, 1))).encode()
    with members(2, tmp_path) as group:
        for words in (b"GET / HTTP/1.1\r\n\r\n", b"{}\n", b"[1]\n", other + b"\n", b"\xff\n", bytes(2 << 20)):
            with socket.create_connection((group[0].address, PORT), timeout=10) as stranger, suppress(ConnectionError):
                stranger.sendall(words)
                assert stranger.recv(100) == b""
        assert group.do("changes") == [False, False]
        agreed(group, [0, 1])
