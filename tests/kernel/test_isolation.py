"""A worker is a machine: names, processes, shared memory and routes, as root and as an ordinary user."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
import traceback
from pathlib import Path

import pytest
from test_namespace import become_nobody

from wanbench.workloads.process import isolation, namespace, tun
from wanbench.workloads.process.descendants import adopt_orphans

ADDRESS = "10.99.0.4"
HOSTS = {"oregon-0": "10.99.0.1", "tokyo-3": ADDRESS}


@pytest.fixture(params=["root", "rootless"])
def in_a_machine(request, tmp_path):
    """Call a function in a machine. Return its value, and the exit status."""

    def call(look, private_tmp=None):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 99
            try:
                os.close(read)
                if request.param == "rootless":
                    open_tun_to_all(tmp_path / "tun")
                    become_nobody()
                namespace.become_namespace_root()
                status = isolation.run_inside(lambda: _work(look, write, private_tmp), lambda pid: None)
            finally:
                os._exit(status)
        os.close(write)
        with os.fdopen(read) as pipe:
            text = pipe.read()  # to the end of the last process inside
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return (json.loads(text) if text else None), status

    return call


def open_tun_to_all(device):
    """Let every user of this process's mount namespace use TUN devices, as on most hosts."""
    os.mknod(device, stat.S_IFCHR, Path("/dev/net/tun").stat().st_rdev)
    device.chmod(0o666)
    namespace.unshare(isolation._CLONE_NEWNS, "new mount namespace")
    isolation._mount("none", Path("/"), "", isolation._MS_REC | isolation._MS_SLAVE)
    isolation._mount(str(device), Path("/dev/net/tun"), "", isolation._MS_BIND)


def _work(look, write, private_tmp):
    try:
        namespace.enter_private_network()
        isolation.enter("tokyo-3", HOSTS, private_tmp)
        device = tun.open_tun("wan0", ADDRESS)
        namespace.lead_outside("wan0", ADDRESS)
        namespace.drop_privileges()
        os.write(write, json.dumps(look()).encode())
        os.close(device)
        return 0
    except BaseException:
        traceback.print_exc()
        return 1


def test_its_name_and_those_of_its_peers_have_addresses_on_the_network(in_a_machine):
    def look():
        return [socket.gethostname(), *(socket.gethostbyname(name) for name in (*HOSTS, "localhost"))]

    found, status = in_a_machine(look)
    assert (found, status) == (["tokyo-3", "10.99.0.1", ADDRESS, "127.0.0.1"], 0)
    assert socket.gethostname() != "tokyo-3"
    assert "tokyo-3" not in Path("/etc/hosts").read_text()


def test_a_program_that_asks_for_its_address_gets_that_of_the_network(in_a_machine):
    def look():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect(("8.8.8.8", 80))
            return sock.getsockname()[0]

    assert in_a_machine(look) == (ADDRESS, 0)


def test_the_outside_and_dns_are_unreachable_at_once(in_a_machine):
    def look():
        numbers = []
        for kind, port in ((socket.SOCK_STREAM, 80), (socket.SOCK_DGRAM, 53)):
            with socket.socket(socket.AF_INET, kind) as sock:
                numbers.append(sock.connect_ex(("8.8.8.8", port)))
        return numbers

    assert in_a_machine(look) == ([errno.ENETUNREACH] * 2, 0)


def test_loopback_has_ipv6_and_the_device_has_not(in_a_machine):
    def look():
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
            socket.create_connection(server.getsockname()[:2]).close()
        return [line.split()[-1] for line in Path("/proc/net/if_inet6").read_text().splitlines()]

    assert in_a_machine(look) == (["lo"], 0)


def test_tmp_can_be_its_own_and_named_folders_in_it_remain(in_a_machine, tmp_path):
    shown = Path(tempfile.mkdtemp(dir="/tmp"))
    own = Path(f"/tmp/own-{shown.name}")
    (shown / "kept").write_text("here")
    shown.chmod(0o755)

    def look():
        own.write_text("x")
        return [sorted(os.listdir("/tmp")), (shown / "kept").read_text()]

    try:
        found, status = in_a_machine(look, private_tmp=[str(shown)])
        assert (found, status) == ([sorted([shown.name, own.name]), "here"], 0)
        assert not own.exists()
    finally:
        shutil.rmtree(shown)


def test_shared_memory_is_its_own(in_a_machine):
    here = Path(f"/dev/shm/wanbench-test-{os.getpid()}")

    def look():
        before = [file.name for file in Path("/dev/shm").iterdir()]
        here.write_text("x")
        return before

    assert in_a_machine(look) == ([], 0)
    assert not here.exists()


def test_it_sees_only_its_own_processes(in_a_machine):
    def look():
        return sorted(int(folder.name) for folder in Path("/proc").glob("[0-9]*"))

    assert in_a_machine(look) == ([1, 2], 0)


def test_all_processes_end_with_the_worker(in_a_machine):
    marker = f"sleep 1000.{os.getpid()}"

    def look():
        subprocess.Popen(["setsid", "sh", "-c", f"{marker} & {marker}"])
        deadline = time.monotonic() + 10
        while not _running(marker) and time.monotonic() < deadline:
            time.sleep(0.01)
        return _running(marker)

    running, status = in_a_machine(look)
    assert running
    assert status == 0
    assert not _running(marker)


def _running(marker):
    return subprocess.run(["pgrep", "-f", f"^{marker}"], stdout=subprocess.DEVNULL, check=False).returncode == 0


def test_processes_whose_parent_has_ended_are_waited_for(in_a_machine):
    def look():
        subprocess.run(["sh", "-c", "sleep 0.1 & exit"], check=True)
        deadline = time.monotonic() + 10
        while len(list(Path("/proc").glob("[0-9]*"))) > 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        return len(list(Path("/proc").glob("[0-9]*")))

    assert in_a_machine(look) == (2, 0)


def test_the_exit_status_of_a_worker_that_is_killed_is_that_of_a_shell(in_a_machine):
    def look():
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_a_machine(look) == (None, 128 + signal.SIGKILL)


def test_programs_can_be_killed_and_others_started(in_a_machine):
    def look():
        found = []
        for _ in range(2):
            for command in (["sleep", "1000"], ["sh", "-c", "sleep 1000 & exit"]):
                subprocess.Popen(command)
            found.append(len(list(Path("/proc").glob("[0-9]*"))) > 2)
            isolation.kill_programs()
            found.append(len(list(Path("/proc").glob("[0-9]*"))))
        return found

    assert in_a_machine(look) == ([True, 2, True, 2], 0)


def test_whoever_adopts_orphans_ends_a_machine_whose_keeper_was_killed():
    """Process 1 of a machine ends only after its worker has been waited for, by the same parent."""
    adopter = os.fork()
    if adopter == 0:
        try:
            _adopt_a_machine_and_end_it()
            os._exit(0)
        finally:
            os._exit(1)
    deadline = time.monotonic() + 30
    while not (ended := os.waitpid(adopter, os.WNOHANG))[0] and time.monotonic() < deadline:
        time.sleep(0.05)
    if not ended[0]:
        os.kill(adopter, signal.SIGKILL)
        os.waitpid(adopter, 0)
    assert ended == (adopter, 0)


def _adopt_a_machine_and_end_it():
    end, (read, write) = adopt_orphans(), os.pipe()
    keeper = os.fork()
    if keeper == 0:
        namespace.become_namespace_root()
        isolation.run_inside(lambda: time.sleep(1000) or 0, lambda worker: os.write(write, b"x"))
    os.read(read, 1)
    os.kill(keeper, signal.SIGKILL)
    end()
