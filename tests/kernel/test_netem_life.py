"""Netem's routers start and end with their process, and touch nothing else."""

import os
import signal
import socket
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from lab import probed
from leftovers import gone_within, host_state, namespaces
from traffic import network, one_way

from wanbench.harness.emulators.emulator import EmulatorError, NetemEmulator
from wanbench.harness.emulators.netem.plan import commands
from wanbench.harness.emulators.probe import TOLERANCES

pytestmark = [pytest.mark.netem, pytest.mark.timed]


def devices():
    """Return the network devices of the worker that calls this."""
    return {name for _, name in socket.if_nameindex()}


def as_root_of(pid, command):
    """Run a command as root in the network namespace of a process."""
    subprocess.run(["nsenter", "-t", str(pid), "-n", "sh", "-ec", command], check=True)


def test_a_killed_process_takes_all_routers_and_the_workers_devices_with_it(netem_lab):
    before = host_state()[0]
    here = netem_lab(network(3))
    routers = namespaces(here.emulator.pid) - set().union(*map(namespaces, here.pids))
    assert len(routers) == 6
    assert here.run(0, devices).result() == {"lo", "wan0"}
    os.kill(here.emulator.pid, signal.SIGKILL)
    assert gone_within(2, [here.emulator.pid])
    after, spaces = host_state()
    assert (after, routers & spaces) == (before, set())
    while here.run(0, devices).result() != {"lo"}:
        pass  # the kernel removes namespaces with a delay


def test_a_replaced_worker_is_joined_when_a_network_is_applied(netem_lab):
    net = network(delay_ms=10)
    here = netem_lab(net)
    here.replace(1)
    assert here.emulator.stats().packets == 0
    here.emulator.apply(net)
    assert len(one_way(here, 0, 1, 10, nbytes=64, gap_s=0.001)) == 10


def test_new_places_replace_the_previous_ones(netem_lab):
    here = netem_lab(network(3))
    for net in (network(2), network(3, site_of=(2, 0, 1)), network(2), network(3)):
        here.emulator.apply(network(1))
        here.emulator.apply(net)
        got = one_way(here, 0, net.workers - 1, 10, nbytes=64, gap_s=0.001)
        assert len(got) == 10
    assert len(namespaces(here.emulator.pid) - set().union(*map(namespaces, here.pids))) == 6


def test_a_worker_that_is_not_attached_is_named():
    with (
        closing(NetemEmulator()) as here,
        pytest.raises(EmulatorError, match=r"^netem: apply: worker 0 is not attached$"),
    ):
        here.apply(network())


def test_a_device_of_another_program_is_refused_and_kept(netem_lab):
    here = netem_lab(network())
    here.replace(1)
    as_root_of(here.pids[1], "ip link add wan0 type veth peer name theirs")
    message = r"^netem: apply: site-s1: w1 to worker-1: wan0: it exists already, and wanbench did not make it$"
    with pytest.raises(EmulatorError, match=message):
        here.emulator.apply(network())
    assert here.run(1, devices).result() == {"lo", "wan0", "theirs"}
    assert here.run(0, devices).result() == {"lo"}


def test_a_removed_device_is_built_again(netem_lab):
    net = network(delay_ms=10)
    here = netem_lab(net)
    as_root_of(here.pids[1], "ip link del wan0")
    with pytest.raises(EmulatorError, match=r"^netem: stats: site-s1: w1: No such device$"):
        here.emulator.stats()
    with pytest.raises(
        EmulatorError, match=r"^netem: apply: site-s1: w1 \(to worker 1\): htb class: does not exist in the kernel$"
    ):
        here.emulator.apply(net)
    here.emulator.apply(net)
    assert len(one_way(here, 0, 1, 10, nbytes=64, gap_s=0.001)) == 10


def test_the_printed_commands_build_the_same_network(netem_lab):
    """Run ip and tc, from iproute2, between workers that are not joined yet."""
    net = network(3, site_of=(0, 0, 1, 2), delay_ms=30, jitter_ms=0.5, loss=0.02, path_mbit=40, up_mbit=30)
    here = netem_lab(network(1))  # of four workers, one is enough to start them
    lines = [line for line in commands(net) if not line.startswith("ip netns add worker-")]
    for rank in range(1, 4):
        here.start_worker(rank)
    here.emulator.close()
    script = "\n".join(
        [
            "mount -t tmpfs tmpfs /run && mkdir /run/netns",
            *(f"ip netns attach worker-{rank} {pid}" for rank, pid in enumerate(here.pids)),
            *lines,
            "echo ready",
            "read end",
        ]
    )
    builder = subprocess.Popen(
        ["unshare", "-m", "sh", "-ec", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with builder:
        try:
            assert builder.stdout.readline() == "ready\n"
            assert probed(net, here.workers, TOLERANCES["netem"]).reasons == ()
        finally:
            builder.stdin.close()


def test_routers_that_stay_as_they_were_set_have_not_changed(netem_lab):
    here = netem_lab(network(delay_ms=10, loss=0.01))
    assert len(one_way(here, 0, 1, 200, nbytes=64, gap_s=0.001)) > 150
    assert here.emulator.stats(reset=True).changed is None
    here.emulator.update(network(delay_ms=20, path_mbit=5))  # as a timeline does
    here.emulator.apply(network(delay_ms=10), seed=7)
    assert here.emulator.stats().changed is None


CHANGES = {  # what somebody does in the router of a site, in words, and how it is undone
    "tc qdisc add dev lo root pfifo": (
        "lo of router site-s0: qdisc pfifo, at the start noqueue",
        "tc qdisc del dev lo root",
    ),
    "ip link set uplink mtu 1000": (
        "uplink of router site-s0: device up with MTU 1000, at",
        "ip link set uplink mtu 1500",
    ),
    "tc qdisc del dev uplink root": ("site-s0: uplink (up of s0): htb class: does not exist in the kernel", "true"),
}


def test_what_somebody_changes_in_a_router_is_named(netem_lab):
    here = netem_lab(network(delay_ms=10, up_mbit=20))
    theirs = set().union(*map(namespaces, here.pids))
    held = [fd for fd in Path(f"/proc/{here.emulator.pid}/fd").iterdir() if os.readlink(fd).startswith("net:[")]
    routers = [["nsenter", f"--net={fd}"] for fd in held if os.readlink(fd) not in theirs]
    router = next(each for each in routers if b" uplink" in subprocess.check_output([*each, "ip", "link"]))
    for command, (words, undone) in CHANGES.items():
        subprocess.run([*router, *command.split()], check=True)
        assert words in here.emulator.stats().changed
        subprocess.run([*router, *undone.split()], check=True)
