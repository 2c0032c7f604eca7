"""The Docker daemon: whether this host can use it, our containers in it, and its errors in one line.

The daemon has to run on this host's kernel, because workers are connected through descriptors and a shared folder.
"""

import errno
import getpass
import grp
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import requests
from docker import APIClient
from docker.context import ContextAPI
from docker.errors import APIError, DockerException, NotFound

from wanbench.harness.errors import HostError
from wanbench.harness.process import owner
from wanbench.netprofiles import Size

IMAGE = "wanbench-worker"
RUN_LABEL, OWNER_LABEL = "org.wanbench.run", "org.wanbench.owner"
_RESTART_S = 30.0  # how long a daemon can be unavailable, e.g. while it restarts
_RETRY_S = 0.5

T = TypeVar("T")


class DaemonGone(HostError):
    """The daemon does not answer."""


class Daemon:
    """The daemon that the `docker` command uses. Any thread can call its methods.

    Attributes:
        address: of the daemon.

    Raises:
        DaemonGone: from every method, if the daemon does not answer.
    """

    def __init__(self) -> None:
        self.address = os.environ.get("DOCKER_HOST") or _context_address()
        self._of_thread = threading.local()
        self._opened: list[APIClient] = []

    @property
    def socket(self) -> str | None:
        """The path of its Unix socket; None if it has another address."""
        return self.address.removeprefix("unix://") if self.address.startswith("unix://") else None

    @contextmanager
    def api(self) -> Iterator[APIClient]:
        """Yield this thread's connection. Errors from the daemon itself are raised as APIError."""
        try:
            if not hasattr(self._of_thread, "api"):
                self._of_thread.api = self._open()
            yield self._of_thread.api
        except APIError:
            raise
        except (DockerException, requests.RequestException, OSError) as error:
            if hasattr(self._of_thread, "api"):
                self._of_thread.api.close()
                del self._of_thread.api
            raise DaemonGone(self._why(error)) from None

    def close(self) -> None:
        """Close all connections."""
        while self._opened:
            self._opened.pop().close()

    def _open(self) -> APIClient:
        if self.socket is not None and (refused := _refusal(self.socket)) is not None:
            raise OSError(refused, os.strerror(refused))
        api = APIClient(base_url=self.address, version="auto")
        self._opened.append(api)
        return api

    def patiently(self, ask: Callable[[], T]) -> T:
        """Return the result of `ask`, which is repeated while the daemon restarts."""
        deadline = time.monotonic() + _RESTART_S
        while True:
            try:
                return ask()
            except DaemonGone:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S)

    def info(self) -> dict[str, Any]:
        """Return the daemon's information about its host."""
        with self.api() as api:
            return dict(api.info())

    def image_id(self, name: str) -> str:
        """Return the digest of an image's configuration. Raises: HostError, if the image is not on this host."""
        try:
            with self.api() as api:
                return str(api.inspect_image(name)["Id"])
        except NotFound:
            remedy = "build it: make image, or name yours in WANBENCH_IMAGE" if name == IMAGE else f"docker pull {name}"
            raise HostError(f"docker: no image {name!r} on this host; {remedy}") from None
        except APIError as error:
            raise HostError(f"docker: image {name!r}: {explained(error)}") from None

    def state(self, container: str) -> dict[str, Any] | None:
        """Return the state of a container, or None if it does not exist."""
        with self.api() as api:
            try:
                return dict(api.inspect_container(container)["State"])
            except NotFound:
                return None

    def signal(self, container: str, number: int) -> None:
        """Send a signal to a container's process, if it runs."""
        with self.api() as api:
            try:
                api.kill(container, int(number))
            except APIError as error:
                if error.status_code not in (404, 409):  # no such container, not running
                    raise

    def last_line(self, container: str) -> list[str]:
        """Return the last line that a container printed, if any."""
        with self.api() as api:
            try:
                output: bytes = api.logs(container, tail=20)
            except APIError:
                return []
        return [line for line in output.decode(errors="replace").splitlines() if line.strip()][-1:]

    def remove(self, container: str) -> None:
        """Kill a container and remove it with its volumes, if it exists."""
        with self.api() as api:
            try:
                api.remove_container(container, force=True, v=True)
            except APIError as error:
                if error.status_code not in (404, 409):  # no such container, already being removed
                    raise

    def of_run(self, run: str | None = None) -> list[dict[str, Any]]:
        """Return the containers of a run, or of all runs, in any state. Only their labels count."""
        with self.api() as api:
            label = RUN_LABEL if run is None else f"{RUN_LABEL}={run}"
            return list(api.containers(all=True, filters={"label": label}))

    def _why(self, error: Exception) -> str:
        path, reason = self.socket, _reason(error)
        if path is None:
            return f"docker: DOCKER_HOST={self.address}: {reason}"
        refused = _refusal(path)
        if refused is None:
            return f"docker: the daemon at {path} does not answer: {reason}"
        if refused in (errno.EACCES, errno.EPERM):
            return f"docker: {path}: permission denied; {_admission(path)}, or run as root"
        return f"docker: no daemon at {path}; start it: sudo systemctl start docker, or use --testbed netns"


def labels(run: str) -> dict[str, str]:
    """Return the labels of every container of a run of this process."""
    return {RUN_LABEL: run, OWNER_LABEL: json.dumps({**owner.mark(), "uid": os.getuid()})}


def usable() -> Daemon:
    """Return the daemon, if this host can use its containers. Raises: HostError, if not."""
    daemon = Daemon()
    try:
        _refuse_foreign(daemon.address, daemon.info())
    except BaseException:
        daemon.close()
        raise
    return daemon


def _refuse_foreign(address: str, info: Mapping[str, Any]) -> None:
    here = os.uname().release
    if info.get("OSType") != "linux" or info.get("KernelVersion") != here:
        kernel = " ".join(filter(None, [info.get("OperatingSystem"), info.get("KernelVersion")]))
        raise HostError(
            f"docker: the daemon at {address} runs on another kernel ({kernel}; this is {here}), which links made "
            "here cannot reach; run wanbench there, too: docker compose run --rm wanbench run SPEC"
        )
    if any(option.startswith("name=userns") for option in info.get("SecurityOptions") or ()):
        raise HostError(
            "docker: the daemon remaps users (userns-remap), so workers cannot share a folder with this process; "
            "run wanbench in a container, too: docker compose run --rm wanbench run SPEC, or use --testbed netns"
        )


def is_there() -> bool:
    """Whether a daemon can be expected: its socket exists, or its address is not a local socket."""
    path = Daemon().socket
    return path is None or Path(path).exists()


def why_not() -> str | None:
    """Return why this host cannot use containers, or None if it can."""
    try:
        usable().close()
    except HostError as error:
        return str(error)
    return None


def describe() -> str:
    """Describe the daemon of this host. Raises: HostError, if this host cannot use it."""
    with closing(usable()) as daemon:
        return f"daemon {daemon.info().get('ServerVersion')} at {daemon.address} on this kernel: --testbed docker"


def stale(daemon: Daemon) -> list[dict[str, Any]]:
    """Return the containers of this user's runs whose process has ended. Raises: HostError."""
    return [container for container in daemon.of_run() if _is_stale(container)]


def sweep(daemon: Daemon) -> list[dict[str, Any]]:
    """Remove the containers that `stale` lists, and return them. Raises: HostError."""
    containers = stale(daemon)
    for container in containers:
        daemon.remove(container["Id"])
    return containers


def explained(error: APIError) -> str:
    """Return the daemon's own message, in one line."""
    text = str(error.explanation or error)
    if isinstance(error.explanation, bytes):
        text = error.explanation.decode(errors="replace")
    return " ".join(text.split())


def _is_stale(container: dict[str, Any]) -> bool:
    try:
        mark = json.loads(container["Labels"][OWNER_LABEL])
        # Daemon and owner run on this kernel, so no process from before a reboot can be alive.
        rebooted = mark["seen_from"].split()[0] != owner.mark()["seen_from"].split()[0]
        return (rebooted or owner.is_gone(mark)) and os.geteuid() in (0, mark["uid"])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return False


def _context_address() -> str:
    context = ContextAPI.get_current_context()
    return str(context.Host if context is not None else "unix:///var/run/docker.sock").removeprefix("http+")


def _refusal(path: str) -> int | None:
    """Return the errno with which a connection to this socket fails, or None if it does not."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        return sock.connect_ex(path) or None


def _admission(path: str) -> str:
    """Return how to get access to the daemon's socket."""
    try:
        group = grp.getgrgid(Path(path).stat().st_gid).gr_name
    except (OSError, KeyError):
        group = "docker"
    return f"join its group (sudo usermod -aG {group} {_user()}, then log in again)"


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "$USER"


def _reason(error: BaseException) -> str:
    """Return the first cause of an error that requests and urllib3 have wrapped."""
    text = " ".join(str(error).split()).removeprefix("Error while fetching server API version: ")
    numbered = re.search(r"\[Errno \d+\] ([\w ]+)", text)
    return numbered[1] if numbered else text


_EXIT_TIMEOUT_S = 3.0
_LOOK_S = 0.05
_REMOVAL_S = 0.5


def how_it_ended(daemon: Daemon, container: str, memory_bytes: int | None) -> str:
    """Return the rest of a sentence that begins with "worker 3". Waits while a daemon restarts."""
    try:
        return f" {_cause(_final(daemon, container), memory_bytes)}"
    except DaemonGone:
        pass
    except APIError:
        return " hung up"
    try:
        state = daemon.patiently(lambda: daemon.state(container))
    except (HostError, APIError):
        return " hung up, and the Docker daemon does not answer"
    return f" {_cause(state, memory_bytes)}; the Docker daemon was unavailable in the meantime"


def _final(daemon: Daemon, container: str) -> dict[str, Any] | None:
    """Return its state after waiting for its end, or None if it was removed."""
    deadline = time.monotonic() + _EXIT_TIMEOUT_S
    while (state := daemon.state(container)) is not None and state["Running"] and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    if state is not None and state["ExitCode"] == 128 + signal.SIGKILL:  # `docker rm --force` kills first
        time.sleep(_REMOVAL_S)
        state = daemon.state(container)
    return None if state is not None and state["Status"] in ("removing", "dead") else state


def _cause(state: dict[str, Any] | None, memory_bytes: int | None) -> str:
    if state is None:
        return "was lost: someone removed its container"
    if state["OOMKilled"]:
        limit = f": its container is limited to {Size(memory_bytes)}" if memory_bytes else ""
        return f"ran out of memory{limit}"
    if state["Running"]:
        return "hung up"
    code = int(state["ExitCode"])
    if code > 128 and code - 128 in {int(number) for number in signal.Signals}:
        return f"was killed by {signal.Signals(code - 128).name}"
    return f"exited with status {code}"
