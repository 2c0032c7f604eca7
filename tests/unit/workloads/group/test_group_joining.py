"""How the ranks of the process group `wan` find each other, also after a restart, and with which settings."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist
from wan_groups import all_reduce_of, on_every_rank

from wanbench.workloads.comm import mesh
from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.windows import connections_that_fill
from wanbench.workloads.group import joining
from wanbench.workloads.group.group import WanGroup
from wanbench.workloads.group.joining import join
from wanbench.workloads.group.settings import settings


@pytest.fixture
def lives(monkeypatch):
    """Yield a function that forms a group of the ranks of one life, all lives with one store."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    store, made = dist.HashStore(), []

    def form(life: int, ranks: list[int], timeout_s: float) -> list[WanGroup | str]:
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(life))

        def joined(wan: WanGroup) -> WanGroup | str:
            try:
                wan._set_sequence_number_for_group()
            except CommError as error:
                return str(error)
            made.append(wan)
            return wan

        return on_every_rank([WanGroup(store, rank, 3, timedelta(seconds=timeout_s)) for rank in ranks], joined)

    form.store = store
    yield form
    on_every_rank(made, lambda wan: wan.shutdown())


def adds_up(groups: list[WanGroup]) -> None:
    for result in on_every_rank(groups, lambda wan: all_reduce_of()(wan).wait() and wan.rank()):
        assert result in range(3)


@pytest.mark.parametrize("ranks", [[0, 1, 2], [0, 1], [1, 2], [2]])
def test_a_later_life_finds_its_own_peers_in_the_store_of_the_first(lives, ranks):
    first = lives(0, ranks, 20.0 if len(ranks) == 3 else 0.3)
    if len(ranks) < 3:
        assert all("did not join the group within 0.3 s" in message for message in first)
    adds_up(lives(1, [0, 1, 2], 20.0))
    adds_up(lives(2, [2, 0, 1], 20.0))


def test_a_late_process_of_the_first_life_is_refused_and_the_second_life_goes_on(lives, monkeypatch):
    """It is there before the others of the second life, or comes between them."""
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(lives, 0, [1], 20.0)
        deadline = time.monotonic() + 20
        while not lives.store.check(["word/1"]) and time.monotonic() < deadline:
            time.sleep(0.01)
        second = lives(1, [0, 1, 2], 20.0)
        (message,) = late.result()
    adds_up(second)
    assert message == "wan: another process has joined the group as rank 1 after this one"


def test_ranks_that_never_come_are_named(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    lonely = WanGroup(dist.HashStore(), 0, 3, timedelta(seconds=0.2))
    with pytest.raises(CommError, match=r"ranks \[1, 2\] did not join the group within 0.2 s"):
        lonely._set_sequence_number_for_group()


class BrokenStore:
    """A store of which one method fails."""

    def __init__(self, method: str) -> None:
        self.method = method

    def __getattr__(self, name: str) -> Any:
        def call(*_: object) -> bytes:
            if name == self.method:
                raise RuntimeError("the store is gone")
            return b""

        return call


def test_ranks_open_as_many_connections_as_the_path_that_needs_most_and_reduce_over_all(group, monkeypatch):
    needs = iter([2, 5, 3])
    monkeypatch.setattr(joining, "connections_that_fill", lambda *path: next(needs))
    groups = group(3)  # rank 1 looks at one path, rank 2 at two
    assert {len(wan._comm._mesh._links[(wan.rank() + 1) % wan.size()]) for wan in groups} == {5}
    adds_up(groups)


def test_the_number_of_connections_follows_the_pace_and_can_be_set(group, monkeypatch):
    rates = []
    monkeypatch.setattr(joining, "connections_that_fill", lambda rtt_s, rate, carried, ranks: rates.append(rate) or 1)
    group(2)
    group(2, WAN_PACES="[[1e6, 2e6], [3e6, 4e6]]")
    assert rates == [125e6, 1e6]
    assert {len(wan._comm._mesh._links[(wan.rank() + 1) % wan.size()]) for wan in group(2, WAN_STREAMS="4")} == {4}
    assert len(rates) == 2


@pytest.mark.parametrize("late", range(4))
def test_the_reason_of_a_failure_arrives_whatever_connection_is_late(group, monkeypatch, late):
    read = mesh.Mesh._read

    def all_but_one(self, connection):
        if connection.peer != 0 or connection is not self._links[0][late]:
            read(self, connection)

    groups = group(3, WAN_STREAMS="4")
    monkeypatch.setattr(mesh.Mesh, "_read", all_but_one)

    def failure(wan: WanGroup) -> str:
        with pytest.raises(CommError) as caught:
            all_reduce_of()(wan).wait()
        return str(caught.value)

    groups[0].abort()
    assert all("rank 0 aborted the group" in message for message in on_every_rank(groups[1:], failure))


@pytest.mark.parametrize(
    ("rtt_s", "rate", "ranks", "connections"),
    [(0.136, 125e6, 2, 6), (1e-3, 125e6, 2, 1), (0.3, 1.25e9, 4, 16), (0.3, 1.25e9, 65, 4), (0.3, 1.25e9, 1000, 1)],
)
def test_connections_fill_a_path_and_are_not_too_many(rtt_s, rate, ranks, connections):
    assert connections_that_fill(rtt_s, rate, 3.0 * (1 << 20), ranks) == connections


@pytest.mark.parametrize("method", ["set", "wait", "get"])
def test_a_rank_whose_store_fails_listens_no_longer(monkeypatch, method):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    listener = mesh.listen("127.0.0.1")
    monkeypatch.setattr(mesh, "listen", lambda address: listener)
    with listener:
        with pytest.raises((RuntimeError, CommError)):
            join(BrokenStore(method), 1, [0, 1], settings(), 0.2)
        assert listener.fileno() == -1


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"WAN_COLLECTIVE": "tree"}, "WAN_COLLECTIVE=tree: expected one of direct, hierarchical, ring"),
        ({"WAN_COLLECTIVE": "ring", "WAN_RING": "0,0"}, "WAN_RING=0,0: expected every rank once, separated by commas"),
        (
            {"WAN_COLLECTIVE": "hierarchical"},
            'needs WAN_SITES, the site of each rank, such as ["paris", "paris", "tokyo"]',
        ),
        ({"WAN_STREAMS": "0"}, "WAN_STREAMS=0: expected a whole number, at least 1"),
        ({"WAN_PACES": "[1]"}, "expected a JSON list of [together, alone] in bytes/s, one per rank"),
        ({"WAN_PACES": "[[NaN, 1]]"}, "expected a JSON list of [together, alone] in bytes/s, one per rank"),
        ({"GLOO_SOCKET_IFNAME": "nothing0"}, "GLOO_SOCKET_IFNAME=nothing0: no IPv4 address of this host"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(group, variables, message):
    with pytest.raises(CommError) as caught:
        group(2, **variables)
    assert message in str(caught.value)
