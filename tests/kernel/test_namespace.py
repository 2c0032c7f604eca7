"""What a worker does at its start, in real namespaces; each test acts in a new process."""

import contextlib
import ctypes
import multiprocessing
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from wanbench.harness.run import doctor
from wanbench.workloads.process import configuration
from wanbench.workloads.process.namespace import (
    NamespaceError,
    drop_privileges,
    enter_private_network,
    set_congestion,
    set_tcp,
)
from wanbench.workloads.process.tun import TunError, device_counters, open_tun, tcp_counters

NOBODY = 65534
"".encode("idna")  # sockets import it late, from a folder that user `nobody` may be unable to read


@pytest.fixture(params=["root", "rootless"])
def inside(request):
    """Call a function in a new process, as root or as user `nobody`; return its value or raise its error."""

    def call(function):
        ours, theirs = multiprocessing.Pipe()
        pid = os.fork()
        if pid == 0:
            try:
                if request.param == "rootless":
                    become_nobody()
                theirs.send(function())
            except BaseException as error:
                theirs.send(error)
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        answer = ours.recv()
        ours.close()
        theirs.close()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return call


def become_nobody():
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # dumpable, like any process that the user started


def test_a_private_network_has_a_loopback_and_nothing_else(inside):
    def look():
        enter_private_network()
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname()).close()
        return socket.if_nameindex(), Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").read_text().strip()

    before = socket.if_nameindex()
    assert inside(look) == ([(1, "lo")], "1")
    assert socket.if_nameindex() == before


def test_tcp_settings_are_in_force_and_read_back(inside):
    def tcp():
        enter_private_network()
        return set_tcp({"congestion": "reno", "slow_start_after_idle": False})

    assert inside(tcp) == {
        "tcp_congestion_control": "reno",
        "tcp_slow_start_after_idle": "0",
        "tcp_no_metrics_save": "1",
        "tcp_rmem": "4096 131072 67108864",
        "tcp_wmem": "4096 65536 67108864",
    }


def test_socket_buffers_can_be_as_large_as_linux_takes(inside):
    def tcp():
        enter_private_network()
        return set_tcp({"congestion": "reno", "send": f"4096 65536 {2**31 - 1}"})["tcp_wmem"]

    assert inside(tcp) == "4096 65536 2147483647"


def test_tcp_settings_can_change_after_privileges_are_dropped(inside):
    def tcp():
        enter_private_network()
        drop_privileges()
        first = set_tcp({"slow_start_after_idle": False})["tcp_slow_start_after_idle"]
        return first, set_tcp({"slow_start_after_idle": True})["tcp_slow_start_after_idle"]

    assert inside(tcp) == ("0", "1")


def test_a_congestion_control_that_is_not_loaded_is_refused_with_the_available_ones(inside):
    def tcp():
        enter_private_network()
        set_tcp({"congestion": "nosuch"})

    message = r"^tcp congestion 'nosuch': not loaded; use one of .*reno.*, or `sudo modprobe tcp_nosuch`$"
    with pytest.raises(NamespaceError, match=message):
        inside(tcp)


def enter_network_with_peers():
    enter_private_network()
    for command in ("link add wan0 type veth peer peer0", "address add 10.77.0.1/16 dev wan0", "link set wan0 up"):
        subprocess.run(["ip", *command.split()], check=True)


@pytest.mark.parametrize("name", Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split())
def test_a_route_can_have_every_congestion_control_that_is_loaded(inside, name):
    def used():
        enter_network_with_peers()
        assert set_congestion("wan0", "10.77.0.1", name)
        drop_privileges()
        with socket.socket() as sock:
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                sock.connect(("10.77.0.2", 9))  # nobody answers: only the route decides
            found = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        return found.rstrip(b"\0").decode(), set_tcp({"congestion": name}, routed=name)["tcp_congestion_control"]

    assert inside(used) == (name, name)


def test_a_route_cannot_have_a_congestion_control_that_is_not_loaded(inside):
    def route():
        enter_network_with_peers()
        return set_congestion("wan0", "10.77.0.1", "nosuch")

    assert inside(route) is False


def test_an_unknown_tcp_setting_is_refused(inside):
    message = r"^tcp: unknown setting 'congstion'; expected one of congestion, .*$"
    with pytest.raises(NamespaceError, match=message):
        inside(lambda: set_tcp({"congstion": "reno"}))


def test_dropped_privileges_do_not_come_back_in_children(inside):
    def status():
        enter_private_network()
        drop_privileges()
        fields = dict(line.split(":\t") for line in os.popen("cat /proc/self/status").read().splitlines())
        return int(fields["CapEff"], 16), int(fields["CapBnd"], 16)

    for mask in inside(status):
        assert not mask >> 21 & 1  # SYS_ADMIN
        assert not mask >> 13 & 1  # NET_RAW
        assert not mask >> 8 & 1  # SETPCAP


def test_a_device_is_configured_and_counts_from_zero():
    with multiprocessing.get_context("fork").Pool(1) as pool:
        link, counters, state = pool.apply(look_at_device)
    for expected in ("mtu 1400", "qlen 1234", "UP", "inet 10.99.0.7/16", "10.99.0.0/16 dev wan0"):
        assert expected in link
    assert set(counters.values()) == {0}
    assert state["OutSegs"] == state["RetransSegs"] == 0


def look_at_device():
    enter_private_network()
    fd = open_tun("wan0", "10.99.0.7", mtu=1400, queue_packets=1234)
    link = os.popen("ip -o link show wan0; ip -o -4 address show wan0; ip route").read()
    answer = link, device_counters(), tcp_counters()
    os.close(fd)
    return answer


def test_creating_a_device_needs_the_right_to_do_so():
    with multiprocessing.get_context("fork").Pool(1) as pool:
        message = r"^device wan0: not allowed to create it; it needs NET_ADMIN in this namespace$"
        with pytest.raises(TunError, match=message):
            pool.apply(open_without_right)


def open_without_right():
    enter_private_network()
    drop_privileges()
    open_tun("wan0", "10.99.0.1")


def test_a_missing_device_is_named():
    with pytest.raises(TunError, match=r"^device wan9: not in this network namespace$"):
        device_counters("wan9")


def test_doctor_finds_the_features_that_other_tests_use_and_leaves_nothing():
    before = set(os.listdir("/sys/class/net"))
    tried = doctor._tried()
    assert tried["namespace"] is None
    assert "reno" in tried["tcp"]
    assert set(os.listdir("/sys/class/net")) == before


UNDER_O = """
from wanbench.workloads.process.namespace import enter_private_network, set_tcp
enter_private_network()
print(set_tcp({"congestion": "cubic"}, routed="cubic")["tcp_congestion_control"])
"""


def test_a_congestion_control_of_the_route_is_accepted_under_python_o():
    command = [sys.executable, "-O", "-c", UNDER_O]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "cubic\n"


def test_a_congestion_control_that_the_route_does_not_have_is_refused(inside):
    def tcp():
        enter_private_network()
        set_tcp({"congestion": "reno"}, routed="cubic")

    with pytest.raises(NamespaceError, match=r"^tcp congestion 'reno': the route to the peers has 'cubic'"):
        inside(tcp)


@pytest.mark.parametrize("inside", ["root"], indirect=True)  # only root can open the device everywhere
def test_use_alone_changes_nothing_of_what_is_configured(inside):
    """A device, traffic, neighbours, metrics, and the key that the kernel draws for TCP Fast Open."""

    def use():
        enter_private_network()
        device = open_tun("wan0", "10.99.0.1")
        before = configuration.read()
        with socket.socket() as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 5)
            server.bind(("127.0.0.1", 0))
            server.listen()
            socket.create_connection(server.getsockname()).close()
            sock.sendto(b"x", ("10.99.0.2", 9))
        change = configuration.first_change(before, configuration.read())
        os.close(device)
        return change, len(before)

    change, things = inside(use)
    assert change is None
    assert things > 100


@pytest.mark.parametrize("inside", ["root"], indirect=True)  # only root can open the device everywhere
def test_a_device_that_is_gone_is_the_first_change(inside):
    def lose():
        enter_private_network()
        device = open_tun("wan0", "10.99.0.1")
        before = configuration.read()
        os.close(device)
        return configuration.first_change(before, configuration.read())

    assert inside(lose) == ("wan0", "device down or gone, at the start up with MTU 1500")
