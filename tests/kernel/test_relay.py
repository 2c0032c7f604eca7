"""The relay on real packets: workers in namespaces, TUN devices, the kernel's own TCP and UDP."""

import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.emulators.base import EmulatorError
from harness.emulators.plan import UNLIMITED, Link, Network, Queue, worker_address
from harness.emulators.probe import probe
from harness.emulators.relay import RelayEmulator
from workloads.tun import device_counters, tcp_counters

MS = 1_000_000
PORT = 5000


def network(
    sites=2, *, delay_ms=20.0, jitter_ms=0.0, loss=0.0, up_mbit=None, path_mbit=None, buffer_ms=100, site_of=None
):
    def queue(mbit):
        return UNLIMITED if mbit is None else Queue(mbit * 125e3, int(mbit * 125 * buffer_ms))

    link = Link(int(delay_ms * MS), int(jitter_ms * MS), loss, queue(path_mbit))
    return Network(
        sites=tuple(f"s{site}" for site in range(sites)),
        site_of=tuple(range(sites)) if site_of is None else site_of,
        up=(queue(up_mbit),) * sites,
        down=(queue(up_mbit),) * sites,
        local_delay_ns=(0,) * sites,
        links={(a, b): link for a in range(sites) for b in range(sites) if a != b},
    )


# ---------------------------------------------------------------- what workers do


def receive_udp(address, count, timeout_s):
    """[(number, one-way delay in ms)] of the first `count` packets, fewer after a pause of `timeout_s`."""
    got = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        sock.bind((address, PORT))
        sock.settimeout(timeout_s)
        while len(got) < count:
            try:
                data = sock.recv(2048)
            except TimeoutError:
                break
            number, sent = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:12], "big")
            got.append((number, (time.monotonic_ns() - sent) / 1e6))
    return got


def send_udp(address, count, nbytes=64, gap_s=0.0):
    time.sleep(0.2)  # for the receiver to listen
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for number in range(count):
            head = number.to_bytes(4, "big") + time.monotonic_ns().to_bytes(8, "big")
            sock.sendto(head + bytes(nbytes - 28 - len(head)), (address, PORT))
            if gap_s:
                time.sleep(gap_s)


def receive_tcp(address, warm_s, seconds):
    """Mbit/s of one connection, measured for `seconds` after the first `warm_s`."""
    with socket.create_server((address, PORT)) as server:
        connection, _ = server.accept()
    with connection:
        connection.settimeout(10)
        begin = time.monotonic() + warm_s
        total = 0
        while (now := time.monotonic()) < begin + seconds:
            nbytes = len(connection.recv(1 << 16))
            total += nbytes if now >= begin else 0
        return total * 8 / seconds / 1e6


def send_tcp(address):
    """Send until the receiver hangs up."""
    for _ in range(100):
        try:
            sock = socket.create_connection((address, PORT))
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    with sock:
        try:
            while True:
                sock.sendall(bytes(1 << 16))
        except (ConnectionResetError, BrokenPipeError):
            return


def one_way(lab, source, to, count=40, **how):
    received = lab.run(to, receive_udp, worker_address(to), count, 1.0)
    lab.run(source, send_udp, worker_address(to), count, *how.values()).result()
    return received.result()


# ---------------------------------------------------------------- fidelity


def test_the_one_way_delay_of_every_direction_is_its_own(lab):
    net = network(delay_ms=20)
    there_and_back = {(0, 1): Link(35 * MS, 0, 0.0, UNLIMITED), (1, 0): Link(10 * MS, 0, 0.0, UNLIMITED)}
    net = Network(net.sites, net.site_of, net.up, net.down, net.local_delay_ns, there_and_back)
    here = lab(net)
    for source, to, delay_ms in ((0, 1, 35), (1, 0, 10)):
        delays = [delay for _, delay in one_way(here, source, to, nbytes=64, gap_s=0.002)]
        assert len(delays) == 40
        assert statistics.median(delays) == pytest.approx(delay_ms, abs=1.0)


def test_one_tcp_flow_gets_the_rate_of_its_path(lab):
    here = lab(network(delay_ms=5, path_mbit=40))
    received = here.run(1, receive_tcp, worker_address(1), 1.0, 2.0)
    here.run(0, send_tcp, worker_address(1))
    assert received.result() == pytest.approx(40 * 1448 / 1500, rel=0.06)


def test_two_workers_of_a_site_share_its_uplink(lab):
    here = lab(network(3, site_of=(0, 0, 1, 2), delay_ms=5, up_mbit=40))
    received = [here.run(rank, receive_tcp, worker_address(rank), 1.5, 2.0) for rank in (2, 3)]
    for source, to in ((0, 2), (1, 3)):
        here.run(source, send_tcp, worker_address(to))
    assert sum(each.result() for each in received) == pytest.approx(40 * 1448 / 1500, rel=0.06)


def test_a_full_buffer_drops_and_tcp_notices(lab):
    here = lab(network(delay_ms=5, path_mbit=20, buffer_ms=10))
    received = here.run(1, receive_tcp, worker_address(1), 0.5, 1.5)
    here.run(0, send_tcp, worker_address(1))
    received.result()
    assert here.emulator.stats().drops["path"] > 0
    assert here.run(0, tcp_counters).result()["RetransSegs"] > 0


def test_loss_is_counted_and_is_what_does_not_arrive(lab):
    here = lab(network(loss=0.2))
    got = one_way(here, 0, 1, 500, nbytes=64, gap_s=0.0002)
    stats = here.emulator.stats()
    assert 400 - 45 < len(got) < 400 + 45  # five standard deviations
    assert stats.drops["loss"] == 500 - len(got)
    assert stats.paths[0].packets == len(got)


def test_jitter_keeps_the_order(lab):
    here = lab(network(jitter_ms=5))
    got = one_way(here, 0, 1, 300, nbytes=64, gap_s=0.001)
    assert [number for number, _ in got] == list(range(300))
    assert statistics.stdev(delay for _, delay in got) > 0.5


def test_a_change_in_mid_flow_reorders_and_loses_nothing(lab):
    here = lab(network(delay_ms=100))
    received = here.run(1, receive_udp, worker_address(1), 400, 1.0)
    sent = here.run(0, send_udp, worker_address(1), 400, 64, 0.001)
    time.sleep(0.4)
    here.emulator.change(0, 1, Link(5 * MS, 0, 0.0, UNLIMITED))
    sent.result()
    got = received.result()
    assert [number for number, _ in got] == list(range(400))
    assert got[0][1] > 99
    assert got[-1][1] < 7


def test_the_probe_finds_the_network_that_was_applied(lab):
    net = network(4, delay_ms=30, jitter_ms=0.5, up_mbit=40)
    here = lab(net)
    report = probe(net, here.workers)
    assert report.reasons == ()
    assert len(report.rows) == report.paths_total == 12
    assert report.shared_up is not None
    assert report.network == net.key()
    assert report.one_way_error_ms < 1.3


def test_the_probe_names_a_network_that_is_another_one(lab):
    net = network(delay_ms=30, path_mbit=40)
    here = lab(net)
    here.emulator.change(1, 0, Link(36 * MS, 0, 0.0, Queue(2.5e6, 10**6)))
    reasons = probe(net, here.workers).reasons
    assert [reason.split(" ms,")[0][:26] for reason in reasons] == [
        "s1 -> s0: one-way delay 36",
        "s1 -> s0: rate 20 Mbit/s, ",
    ] or [reason[:21] for reason in reasons] == ["s1 -> s0: one-way del", "s1 -> s0: rate 19.99 "]


# ---------------------------------------------------------------- accounts


def test_lateness_cpu_and_traffic_are_reported_for_the_period(lab):
    here = lab(network())
    here.emulator.stats(reset=True)
    one_way(here, 0, 1, 100, nbytes=1500, gap_s=0.001)
    stats = here.emulator.stats(reset=True)
    assert (stats.packets, stats.bytes) == (100, 150_000)
    assert 0 <= stats.lateness_p50_ms <= stats.lateness_p99_ms <= stats.lateness_max_ms
    assert stats.read_lag_p99_ms <= stats.read_lag_max_ms
    assert 0 < stats.cpu_s < stats.seconds
    assert here.emulator.stats().packets == 0


def test_a_packet_to_nobody_is_counted(lab):
    here = lab(network())
    here.run(0, send_udp, worker_address(9), 3).result()
    time.sleep(0.1)
    assert here.emulator.stats().drops["unknown"] == 3


def test_a_replaced_worker_gets_nothing_meant_for_the_one_before(lab):
    here = lab(network(delay_ms=600))
    here.run(0, send_udp, worker_address(1), 50).result()
    here.replace(1)
    time.sleep(1.0)
    stats = here.emulator.stats()
    assert (stats.drops["gone"], stats.packets) == (50, 0)
    assert len(one_way(here, 0, 1, 10, nbytes=64, gap_s=0.001)) == 10


def test_device_counters_see_ip_bytes(lab):
    here = lab(network())
    before = here.run(0, device_counters).result()
    one_way(here, 0, 1, 10, nbytes=1000, gap_s=0.001)
    after = here.run(0, device_counters).result()
    assert after["tx_bytes"] - before["tx_bytes"] == 10_000
    assert after["tx_packets"] - before["tx_packets"] == 10


# ---------------------------------------------------------------- life and death


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def gone_within(seconds, pids):
    deadline = time.monotonic() + seconds
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(alive(pid) for pid in pids)


def host_state():
    """Devices of this namespace, and how many network namespaces processes are in."""
    devices = {line.partition(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]}
    spaces = set()
    for process in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            spaces.add(os.readlink(process))
        except OSError:
            continue
    return devices, spaces


def test_close_leaves_nothing_behind(lab):
    before = host_state()[0]
    here = lab(network(3))
    pids = [here.emulator.pid, *here.pids]
    ours = {os.readlink(f"/proc/{pid}/ns/net") for pid in here.pids}
    assert len(ours) == 3
    here.close()
    here.close()
    assert gone_within(2, pids)
    devices, spaces = host_state()
    assert devices == before
    assert not ours & spaces


ORPHAN = """
import sys, time
sys.path[:0] = {paths!r}
from conftest import Lab
from test_relay import network
lab = Lab(network(3))
print(lab.emulator.pid, *lab.pids, flush=True)
time.sleep(60)
"""


def test_sigkill_of_the_controller_leaves_nothing_behind():
    here = Path(__file__).parent
    before = host_state()[0]
    program = ORPHAN.format(paths=[str(here), str(here.parents[1])])
    controller = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    with controller:
        pids = [int(pid) for pid in controller.stdout.readline().split()]
        assert len(pids) == 4
        assert all(alive(pid) for pid in pids)
        ours = {os.readlink(f"/proc/{pid}/ns/net") for pid in pids[1:]}
        controller.kill()
    assert gone_within(2, pids)
    devices, spaces = host_state()
    assert devices == before
    assert not ours & spaces


def test_a_relay_that_was_killed_says_so():
    relay = RelayEmulator()
    os.kill(relay.pid, signal.SIGKILL)
    message = r"^relay: the process was killed by SIGKILL$"
    with pytest.raises(EmulatorError, match=message):
        relay.stats()
    relay.close()


def test_a_closed_relay_says_so():
    relay = RelayEmulator()
    relay.close()
    with pytest.raises(EmulatorError, match=r"^relay: the emulator was closed$"):
        relay.stats()


def test_ctrl_c_does_not_end_the_relay():
    with RelayEmulator() as relay:
        os.kill(relay.pid, signal.SIGINT)
        time.sleep(0.05)
        assert relay.stats().packets == 0


def test_a_change_of_a_path_that_is_not_there_is_refused():
    with RelayEmulator() as relay:
        relay.apply(network())
        with pytest.raises(EmulatorError, match=r"^relay: change: there is no path from site 0 to site 7$"):
            relay.change(0, 7, Link(0, 0, 0.0, UNLIMITED))
