"""The messages if the Docker daemon cannot be used. A fake daemon answers on a Unix socket."""

from __future__ import annotations

import errno
import grp
import json
import os
import socketserver
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler

import pytest

from wanbench.harness import testbeds
from wanbench.harness.errors import HostError
from wanbench.harness.process import owner
from wanbench.harness.testbeds.docker import daemon as docker_host

KERNEL = os.uname().release


class FakeDaemon(socketserver.ThreadingUnixStreamServer):
    """Answers a GET request with the entry of `answers` for the end of its path."""

    daemon_threads = True

    def __init__(self, path, answers):
        super().__init__(str(path), Handler)
        self.answers = answers
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.path.partition("?")[0]
        found = [value for end, value in self.server.answers.items() if path.endswith(end)]
        body = json.dumps(found[0] if found else {"message": f"no such thing: {path}"}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self):
        return "unix"

    def log_message(self, *_):
        pass


@pytest.fixture
def daemon(tmp_path, monkeypatch):
    """Return a function that starts a fake daemon with this answer to /info, and these containers."""
    servers = []

    def make(info, containers=()):
        answers = {
            "/version": {"ApiVersion": "1.41"},
            "/info": {"OSType": "linux", "KernelVersion": KERNEL, "ServerVersion": "20.10", **info},
            "/containers/json": list(containers),
        }
        servers.append(FakeDaemon(tmp_path / "docker.sock", answers))
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
        return f"unix://{tmp_path}/docker.sock"

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_daemon_on_this_kernel_is_used(daemon):
    address = daemon({})
    assert docker_host.why_not() is None
    assert docker_host.describe() == f"daemon 20.10 at {address} on this kernel: --testbed docker"


def test_a_missing_daemon_is_reported_in_one_line_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    line = f"docker: no daemon at {tmp_path}/docker.sock; start it: sudo systemctl start docker, or use --testbed netns"
    assert docker_host.why_not() == line
    assert not docker_host.is_there()
    with pytest.raises(HostError) as caught:
        testbeds.check("docker")
    assert str(caught.value) == line


def test_a_socket_without_a_listener_is_no_daemon(daemon, tmp_path):
    daemon({})
    os.unlink(tmp_path / "docker.sock")
    (tmp_path / "docker.sock").touch()
    assert docker_host.why_not() == (
        f"docker: no daemon at {tmp_path}/docker.sock; start it: sudo systemctl start docker, or use --testbed netns"
    )


def test_a_denied_permission_names_the_group_to_join(daemon, tmp_path, monkeypatch):
    daemon({})
    monkeypatch.setattr(docker_host, "_refusal", lambda path: errno.EACCES)  # nothing is refused to root
    monkeypatch.setenv("LOGNAME", "ada")
    group = grp.getgrgid(os.getgid()).gr_name
    assert docker_host.why_not() == (
        f"docker: {tmp_path}/docker.sock: permission denied; join its group "
        f"(sudo usermod -aG {group} ada, then log in again), or run as root"
    )


def test_a_daemon_on_another_kernel_is_refused_with_the_remedy(daemon):
    address = daemon({"KernelVersion": "6.6.12-linuxkit", "OperatingSystem": "Docker Desktop"})
    assert docker_host.why_not() == (
        f"docker: the daemon at {address} runs on another kernel (Docker Desktop 6.6.12-linuxkit; this is {KERNEL}), "
        "which links made here cannot reach; run wanbench there, too: docker compose run --rm wanbench run SPEC"
    )


def test_a_daemon_that_remaps_users_is_refused(daemon):
    daemon({"SecurityOptions": ["name=seccomp,profile=default", "name=userns"]})
    assert docker_host.why_not() == (
        "docker: the daemon remaps users (userns-remap), so workers cannot share a folder with this process; "
        "run wanbench in a container, too: docker compose run --rm wanbench run SPEC, or use --testbed netns"
    )


def test_an_invalid_address_is_shown(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    assert docker_host.why_not() == "docker: DOCKER_HOST=tcp://127.0.0.1:1: Connection refused"
    monkeypatch.setenv("DOCKER_HOST", "nonsense")
    assert docker_host.why_not() == (
        "docker: DOCKER_HOST=nonsense: Invalid bind address format: port is required: nonsense"
    )


def test_a_missing_image_is_named_with_the_command_that_provides_it(daemon):
    daemon({})
    with pytest.raises(HostError) as caught:
        testbeds.check("docker", [None])
    assert str(caught.value) == (
        "docker: no image 'wanbench-worker' on this host; build it: make image, or name yours in WANBENCH_IMAGE"
    )
    with pytest.raises(HostError) as caught:
        testbeds.check("docker", ["mine:1"])
    assert str(caught.value) == "docker: no image 'mine:1' on this host; docker pull mine:1"


def container(identity, **mark):
    owned = {**owner.mark(), "uid": os.geteuid(), **mark}
    labels = {docker_host.RUN_LABEL: "wanbench-x", docker_host.OWNER_LABEL: json.dumps(owned)}
    return {"Id": identity, "Names": [f"/{identity}"], "Labels": labels}


def test_only_containers_whose_owner_has_certainly_ended_are_stale(daemon):
    boot, _, pids = owner.mark()["seen_from"].partition(" ")
    unmarked = container("without-a-mark")
    del unmarked["Labels"][docker_host.OWNER_LABEL]
    daemon(
        {},
        [
            container("of-this-process"),
            container("of-a-process-that-ended", started=1),
            container("of-another-boot", seen_from=f"other {pids}"),
            container("of-another-pid-namespace", seen_from=f"{boot} pid:[1]", started=1),
            unmarked,
        ],
    )
    with closing(docker_host.Daemon()) as fake:
        found = [stale["Id"] for stale in docker_host.stale(fake)]
    assert found == ["of-a-process-that-ended", "of-another-boot"]
