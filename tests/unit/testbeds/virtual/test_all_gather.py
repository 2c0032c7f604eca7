"""An all-gather gives every rank the vectors of all ranks: on sockets, in threads and on the simulated clock."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.distributed import HashStore, ProcessGroupGloo
from virtual_world import NO_RAMP, on_the_wire, star

from wanbench.harness.testbeds.base import WorkerDied
from wanbench.harness.testbeds.virtual.fabric import SimulatedFabric
from wanbench.harness.testbeds.virtual.kernel import Simulation
from wanbench.harness.testbeds.virtual.network import VirtualNetwork
from wanbench.workloads.comm import mesh
from wanbench.workloads.comm.base import CommError, Phantom
from wanbench.workloads.comm.clock import MonotonicClock
from wanbench.workloads.comm.direct import DirectComm
from wanbench.workloads.comm.gloo import GlooComm
from wanbench.workloads.comm.local import run_replicas
from wanbench.workloads.comm.memory import MemoryComm, MemoryGroup
from wanbench.workloads.comm.meter import MeteredComm


def on_direct(world_size, body):
    listeners = [mesh.listen("127.0.0.1") for _ in range(world_size)]
    addresses = [listener.getsockname()[:2] for listener in listeners]

    def one(rank):
        link = mesh.connect(listeners[rank], rank, addresses, connections=2, timeout_s=10)
        comm = DirectComm(link, timeout_s=10)
        try:
            return body(comm)
        finally:
            barrier.wait(20)
            comm.close()

    barrier = threading.Barrier(world_size)
    with ThreadPoolExecutor(world_size) as pool:
        return list(pool.map(one, range(world_size)))


def on_gloo(world_size, body):
    store, barrier = HashStore(), threading.Barrier(world_size)

    def one(rank):
        comm = GlooComm(store, rank, world_size, interface="lo", channels=2, timeout_s=20)
        try:
            return body(comm)
        finally:
            barrier.wait(20)
            comm.close()

    with ThreadPoolExecutor(world_size) as pool:
        return list(pool.map(one, range(world_size)))


def on_virtual(world_size, body, *, collective="direct", network=None):
    simulation, found = Simulation(), {}
    virtual = VirtualNetwork(network or star([1] * world_size, 100.0), tcp=NO_RAMP)
    group = MemoryGroup(world_size, SimulatedFabric(simulation, virtual, collective, 1))

    def worker(rank):
        found[rank] = body(MemoryComm(group, rank))

    for rank in range(world_size):
        simulation.spawn(rank, lambda rank=rank: worker(rank))
    simulation.run()
    return [found[rank] for rank in range(world_size)]


BACKENDS = {"threads": run_replicas, "direct": on_direct, "gloo": on_gloo, "virtual": on_virtual}


def given(rank, number, dtype=torch.float32):
    return (torch.arange(7) + 10 * rank + 100 * number).to(dtype)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32], ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_rank_gets_every_vector_even_between_all_reduces(backend, dtype):
    def body(comm):
        works, gathered, means = [], [], []
        for number in range(3):
            mine = given(comm.rank, number % 2, dtype)
            gathered.append([mine.new_zeros(7) for _ in range(comm.world_size)])
            works.append(comm.all_gather(mine, gathered[-1]))
            means.append(given(comm.rank, number))
            works.append(comm.all_reduce(means[-1]))
        for work in reversed(works):
            work.wait()
            work.wait()  # a second wait returns at once
        return gathered, means

    for gathered, means in BACKENDS[backend](3, body):
        for number in range(3):
            for rank, part in enumerate(gathered[number]):
                assert torch.equal(part, given(rank, number % 2, dtype))
            torch.testing.assert_close(means[number], given(1, number))


def test_vectors_that_arrive_before_the_operation_is_issued_wait_for_it():
    sent = threading.Event()

    def body(comm):
        parts = [torch.zeros(7) for _ in range(2)]
        if comm.rank == 1:
            sent.wait(10)
        work = comm.all_gather(given(comm.rank, 0), parts)
        if comm.rank == 0:
            threading.Timer(0.05, sent.set).start()
        work.wait()
        return parts

    for parts in on_direct(2, body):
        assert torch.equal(parts[0], given(0, 0))
        assert torch.equal(parts[1], given(1, 0))


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("threads", "ranks disagree on all_gather 0: rank . gave [48] bytes to all_gather 0, others [48]$"),
        ("direct", "ranks disagree on the size of all_gather 0: rank . sent [48] bytes; rank . expected [48]$"),
    ],
)
def test_different_sizes_are_an_error_and_not_a_hang(backend, message):
    def body(comm):
        mine = torch.zeros(comm.rank + 1)
        with pytest.raises(CommError, match=message):
            comm.all_gather(mine, [mine.clone() for _ in range(2)]).wait()

    BACKENDS[backend](2, body)


def test_on_the_simulated_clock_different_sizes_and_operations_are_refused():
    def sizes(comm):
        mine = torch.zeros(comm.rank + 1)
        comm.all_gather(mine, [mine.clone() for _ in range(2)]).wait()

    def kinds(comm):
        mine = torch.zeros(1)
        (comm.all_reduce(mine) if comm.rank else comm.all_gather(mine, [mine, mine])).wait()

    for body, message in [
        (sizes, "worker 1: ranks disagree on the size of all_gather 0: rank 1 gave 8 bytes, others 4"),
        (kinds, "worker 1: ranks disagree on operation 0: rank 1 issued all_reduce, others did not"),
    ]:
        with pytest.raises(WorkerDied) as caught:
            on_virtual(2, body)
        assert str(caught.value) == message


def seconds(collective, network, nbytes):
    """Seconds of an all-gather of phantoms, for the slowest rank."""

    def body(comm):
        mine = Phantom(nbytes, 1)
        comm.all_gather(mine, [mine] * comm.world_size).wait()
        return comm.group.fabric.now() / 1e9

    return max(on_virtual(network.workers, body, collective=collective, network=network))


@pytest.mark.parametrize("workers", [2, 4, 7])
@pytest.mark.parametrize(("collective", "rtts"), [("direct", 0.5), ("ring", None), ("gloo", 1.0)])
def test_latency_alone_costs_half_a_round_trip_or_its_number_of_hops(collective, rtts, workers):
    expected = 0.5 if collective == "direct" else (workers - 1) * (rtts or 0.5)
    assert seconds(collective, star([1] * workers, 100.0), 100) == pytest.approx(0.1 * expected, rel=1e-6)


@pytest.mark.parametrize("workers", [2, 4, 7])
@pytest.mark.parametrize("collective", ["direct", "ring"])
def test_bytes_alone_cost_n_minus_one_vectors_on_each_link(collective, workers):
    nbytes, rate = 10_000_000, 1e8
    expected = (workers - 1) * on_the_wire(nbytes) / rate
    assert seconds(collective, star([1] * workers, 0.0, rate=rate), nbytes) == pytest.approx(expected, rel=0.01)


def test_workers_of_one_site_are_reached_by_their_local_delay():
    assert seconds("direct", star([2], 100.0, local_ms=1.0), 100) == pytest.approx(0.001)


def test_a_meter_counts_the_vector_once_for_any_number_of_messages():
    def body(comm):
        metered = MeteredComm(comm, MonotonicClock())
        mine = torch.zeros(7)
        metered.all_gather(mine, [mine.clone() for _ in range(comm.world_size)]).wait()
        return metered.payload_bytes, metered.messages_sent

    assert run_replicas(3, body) == [(28, 1)] * 3
    assert run_replicas(1, body) == [(0, 0)]


def test_gloo_connects_with_a_torch_whose_devices_cannot_open_connections_later(monkeypatch):
    create = ProcessGroupGloo.create_device

    def of_torch_2_6(hostname="", interface=""):
        devices.append(interface)
        return create(hostname=hostname, interface=interface)

    devices = []
    monkeypatch.setattr(ProcessGroupGloo, "create_device", staticmethod(of_torch_2_6))
    totals = on_gloo(3, _total)
    assert devices == ["lo"] * 2 * 3
    assert totals == [6.0] * 3


def _total(comm):
    vector = torch.tensor([comm.rank + 1.0])
    gathered = [torch.empty(1) for _ in range(comm.world_size)]
    comm.all_gather(vector, gathered).wait()
    return float(sum(gathered))
