"""Workers as greenlets: the order in which they run, and the points at which they must not be switched."""

from __future__ import annotations

import threading

import pytest
import torch
from virtual_world import star

from wanbench.harness.emulators.plan import payload_share
from wanbench.harness.plan.pacing import paces, room
from wanbench.harness.testbeds.base import WorkerDied
from wanbench.harness.testbeds.virtual.fabric import SimulatedFabric
from wanbench.harness.testbeds.virtual.kernel import Simulation, Stopped, SwitchError
from wanbench.harness.testbeds.virtual.network import VirtualNetwork
from wanbench.workloads.comm.clock import VirtualClock
from wanbench.workloads.comm.memory import MemoryComm, MemoryGroup

ROOM = room(1500)


def world(workers, body, shuffle=None, stopped=None, rtt_ms=10.0, rate=None, collective="direct"):
    """Run `body(comm, clock)` on each worker."""
    simulation = Simulation(shuffle=shuffle, stopped=stopped)
    network = star([1] * workers, rtt_ms, rate)
    paced = None if rate is None else lambda rank: paces(network, rank)
    fabric = SimulatedFabric(simulation, VirtualNetwork(network), collective, 1, paces=paced)
    group = MemoryGroup(workers, fabric)
    for rank in range(workers):
        simulation.spawn(rank, lambda rank=rank: body(MemoryComm(group, rank), VirtualClock(fabric, rank)))
    simulation.run()


def refused(body, workers=1):
    with pytest.raises(WorkerDied) as caught:
        world(workers, body)
    return caught.value


def test_the_worker_with_the_smallest_clock_runs():
    log = []

    def body(comm, clock):
        for _ in range(3):
            clock.sleep((comm.rank + 1) * 0.1)
            log.append((clock.now(), comm.rank))

    world(3, body)
    assert log == sorted(log)
    assert log[-1] == (900_000_000, 2)


def test_time_is_whole_nanoseconds_and_does_not_drift():
    def body(comm, clock):
        for _ in range(1000):
            clock.sleep(0.1)
        assert clock.now() == 100_000_000_000

    world(1, body)


def test_an_all_reduce_is_the_mean_in_the_order_of_ranks():
    def body(comm, clock):
        clock.sleep(0.001 * (3 - comm.rank))
        vector = torch.tensor([float(comm.rank), 1.0])
        comm.all_reduce(vector).wait()
        assert vector.tolist() == [1.5, 1.0]

    world(4, body)


def test_messages_arrive_in_order_for_an_early_or_late_receiver():
    def body(comm, clock):
        if comm.rank == 0:
            for value in (1.0, 2.0):
                comm.send(torch.tensor([value]), 1).wait()
        else:
            received = torch.zeros(1)
            for value in (1.0, 2.0):
                comm.recv(received, 0).wait()
                assert received.item() == value
                assert clock.now() >= 5_000_000
            clock.sleep(1.0)

    world(2, body)


@pytest.mark.parametrize(("collective", "seconds"), [("direct", 1 / ROOM - 0.02), ("gloo", 0.0)])
def test_a_send_ends_when_the_kernel_has_the_message(collective, seconds):
    """The kernel of a paced connection takes 20 ms of its pace ahead. That of gloo takes everything."""
    rate = 10e6

    def body(comm, clock):
        vector = torch.zeros(round(rate * payload_share(1500) / 4))  # a second at the rate
        if comm.rank == 0:
            comm.send(vector, 1).wait()
            assert clock.now() / 1e9 == pytest.approx(seconds, abs=1e-3)
        else:
            comm.recv(vector, 0).wait()
            assert clock.now() / 1e9 > 1

    world(2, body, rate=rate, collective=collective)


def test_a_small_message_is_sent_at_once():
    def body(comm, clock):
        if comm.rank == 0:
            comm.send(torch.zeros(10_000), 1).wait()
            assert clock.now() == 0
        else:
            comm.recv(torch.zeros(10_000), 0).wait()

    world(2, body, rate=1e6)


def test_done_does_not_switch_workers():
    def body(comm, clock):
        work = comm.all_reduce(torch.zeros(1))
        assert not work.done()
        clock.sleep(0.0099)
        assert not work.done()
        clock.sleep(0.0002)
        assert work.done()
        work.wait()

    world(2, body)


def test_the_order_of_workers_at_equal_times_does_not_change_the_result():
    def run(shuffle):
        log = []

        def body(comm, clock):
            for _ in range(5):
                clock.sleep(0.1)
                vector = torch.tensor([0.1 * (comm.rank + 1)])
                comm.all_reduce(vector).wait()
                log.append((clock.now(), comm.rank, vector.item()))

        world(6, body, shuffle)
        return log

    plain = run(None)
    shuffled = run(7)
    assert shuffled != plain  # the order did change
    assert sorted(shuffled) == sorted(plain)


def test_a_worker_must_not_wait_inside_no_grad():
    def body(comm, clock):
        with torch.no_grad():
            comm.all_reduce(torch.zeros(1)).wait()

    error = refused(body, workers=2)
    assert isinstance(error.__cause__, SwitchError)
    assert str(error) == "worker 0: virtual: a worker waits inside no_grad; wait before or after it"


def test_a_worker_must_not_sleep_inside_a_backward_pass_or_its_hooks():
    def body(comm, clock):
        w = torch.ones(2, requires_grad=True)
        w.register_hook(lambda g: clock.sleep(0.1))
        (w * w).sum().backward()

    error = refused(body)
    assert str(error) == "worker 0: virtual: a worker waits inside a backward pass or its hooks; wait after it"


def test_switching_inside_a_forward_pass_is_exact():
    def body(comm, clock):
        w = torch.full((2,), float(comm.rank + 1), requires_grad=True)
        half = w * 3
        clock.sleep(0.1 * (comm.rank + 1))
        (half * half).sum().backward()
        assert w.grad.tolist() == [18.0 * (comm.rank + 1)] * 2

    world(3, body)


@pytest.mark.parametrize("seconds", [-0.001, float("nan")])
def test_a_negative_duration_is_refused(seconds):
    error = refused(lambda comm, clock: clock.sleep(seconds))
    assert str(error) == f"worker 0: virtual: a worker cannot sleep for {seconds} s; expected 0 or more"


def test_a_worker_that_waits_for_a_missing_peer_is_an_error():
    def body(comm, clock):
        if comm.rank == 1:
            comm.all_reduce(torch.zeros(1)).wait()

    error = refused(body, workers=3)
    assert str(error) == "worker 1: rank 1 waits for a peer that does not take part"


def test_different_sizes_are_an_error():
    error = refused(lambda comm, clock: comm.all_reduce(torch.zeros(comm.rank + 1)).wait(), workers=2)
    assert str(error) == "worker 1: ranks disagree on the size of all_reduce 0: rank 1 gave 8 bytes, others 4"


def test_the_error_of_a_worker_names_it_and_unwinds_the_others():
    unwound = []

    def body(comm, clock):
        try:
            if comm.rank == 2:
                clock.sleep(0.5)
                raise KeyError("mine")
            comm.all_reduce(torch.zeros(1)).wait()
        finally:
            unwound.append(comm.rank)

    error = refused(body, workers=3)
    assert error.rank == 2
    assert isinstance(error.__cause__, KeyError)
    assert sorted(unwound) == [0, 1, 2]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_simulation_can_be_stopped_from_another_thread(workers):
    stopped = threading.Event()

    def body(comm, clock):
        while True:
            clock.sleep(0.1)

    timer = threading.Timer(0.2, stopped.set)
    timer.start()
    with pytest.raises(Stopped):
        world(workers, body, stopped=stopped)
    timer.join()
