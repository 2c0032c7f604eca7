"""Workers in containers that the Docker daemon starts without a network.

controller --+-- worker 0: a container with network none; the emulator connects its wan0
    |        +-- worker 1 ...
    |        +-- emulator of slot 0
    +-- janitor: removes the containers, however the controller ends

The control folder is mounted into every container at its own path. It holds the socket at which workers report, and the
files through which they find each other, so neither uses the emulated network.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from docker.errors import APIError, NotFound
from docker.types import DeviceRequest, Healthcheck, LogConfig, Mount

import wanbench
from wanbench.harness.emulators.plan import worker_address
from wanbench.harness.errors import HostError
from wanbench.harness.testbeds.base import Group, WorkerDied
from wanbench.harness.testbeds.docker.containers import (
    ContainerStarter,
    ContainerWorker,
    Door,
    Guest,
    assign_rank,
    worker_ids,
)
from wanbench.harness.testbeds.docker.daemon import (
    IMAGE,
    Daemon,
    DaemonGone,
    explained,
    how_it_ended,
    labels,
    sweep,
    usable,
)
from wanbench.harness.testbeds.docker.janitor import Janitor
from wanbench.harness.testbeds.slot import SlotTestbed, Worker
from wanbench.workloads.process.namespace import congestion_refused, tcp_sysctls

_REPORT_S = 120.0  # from a container's start to its report, on a busy host
_LOOK_S = 0.2
_SINGLE_THREADED = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class DockerWorker(ContainerWorker):
    """A worker in a container."""

    def __init__(self, rank: int, guest: Guest, container: str, group: Group, testbed: DockerTestbed) -> None:
        super().__init__(rank, guest.channel)
        self.container = container
        self._group = group
        self._testbed = testbed

    def failure(self) -> WorkerDied:
        """Return an error that describes how it ended."""
        return WorkerDied(self.rank, how_it_ended(self._testbed.daemon, self.container, self._group.memory_bytes))

    def request_stack(self) -> None:
        """Let it print its stack (see `workloads.process.worker`), unless it is paused: Docker would resume it."""
        with suppress(HostError, APIError):
            if not self.is_stopped():
                self._testbed.daemon.signal(self.container, signal.SIGUSR1)

    def is_stopped(self) -> bool:
        """Whether its container is paused."""
        with suppress(HostError, APIError):
            state = self._testbed.daemon.state(self.container)
            return state is not None and bool(state["Paused"])
        return False

    def kill(self) -> None:
        """Close the connection and let the janitor remove the container, even if it is paused."""
        super().kill()
        self._testbed.janitor.remove(self.container)


class DockerTestbed(SlotTestbed):
    """Connects to the daemon and opens slots.

    Args:
        folder: folder shared with the containers, whose name is the run's label; must exist.

    Raises:
        HostError: this host cannot use a daemon.
    """

    def __init__(self, folder: Path) -> None:
        self.daemon: Daemon = usable()
        sweep(self.daemon)
        (uid, gid), own_uid = worker_ids(), os.getuid()
        if uid != own_uid:  # sticky: a worker can create files here, and remove only its own
            os.chown(folder, -1, gid)
            folder.chmod(0o1770)
        self.folder, self.run = folder, folder.name
        self.door = Door(folder / "workers.sock", {uid, own_uid}, gid if uid != own_uid else None)
        self.janitor = Janitor(self.run)
        self.numbers = itertools.count()
        self.starts = Starts()
        self._digest = cache(self.daemon.image_id)
        super().__init__()
        self._starters: list[DockerStarter] = []

    def starter(self) -> DockerStarter:
        """Return a new starter for each slot."""
        self._starters.append(DockerStarter(self))
        return self._starters[-1]

    def image_id(self, group: Group) -> str:
        """Return the digest of the image that the group's containers run during the whole run. Raises: HostError."""
        return self._digest(image_name(group.image))

    def kill(self) -> None:
        """End every worker, even those that are still starting."""
        for containers in self._starters:
            containers.kill()
        super().kill()

    def close(self) -> None:
        """Remove everything that this testbed made."""
        self.kill()
        self.door.close()  # before the workers end, because none of them is to be replaced
        super().close()
        self.janitor.close()
        self.daemon.close()


class Starts:
    """Keeps slots from measuring while another slot starts workers, which uses a processor for seconds.

    Slots start together at the beginning of a run, and later only to replace workers.
    """

    def __init__(self) -> None:
        self._under_way = 0
        self._changed = threading.Condition()

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """A slot starts workers."""
        with self._changed:
            self._under_way += 1
        try:
            yield
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    def wait(self) -> None:
        """Wait until no slot starts workers."""
        with self._changed:
            self._changed.wait_for(lambda: self._under_way == 0, _REPORT_S)


class DockerStarter(ContainerStarter):
    """Starts the containers of one slot."""

    def __init__(self, testbed: DockerTestbed) -> None:
        super().__init__()
        self._testbed = testbed

    def image(self, group: Group) -> str | None:
        """Return the digest of the image."""
        return self._testbed.image_id(group)

    def start_worker(self, rank: int, attachment: str, group: Group) -> tuple[Worker, int]:
        """Return a worker once it is ready, and no slot starts workers if it is the last of its group."""
        with self._testbed.starts.under_way():
            started = super().start_worker(rank, attachment, group)
        if not self._starting:
            self._testbed.starts.wait()
        return started

    def launch(self, ranks: Sequence[int], attachment: str, group: Group) -> list[ContainerWorker]:
        """Start containers for these ranks. Waits once for a daemon that restarts."""
        try:
            return self._launch(ranks, attachment, group)
        except DaemonGone:
            self._testbed.daemon.patiently(self._testbed.daemon.info)
            return self._launch(ranks, attachment, group)

    def _launch(self, ranks: Sequence[int], attachment: str, group: Group) -> list[ContainerWorker]:
        made: dict[int, tuple[str, str]] = {}
        workers: list[ContainerWorker] = []
        remedy = "build it again: make image" if image_name(group.image) == IMAGE else "build it again"
        try:
            for rank in ranks:
                name = f"{self._testbed.run}-{next(self._testbed.numbers)}"
                container = self._create(name, rank, attachment, group)
                made[rank] = name, container
                self._start(container, group)
            for rank, (name, container) in made.items():
                guest = self._await(name, container, rank, group)
                workers.append(DockerWorker(rank, guest, container, group, self._testbed))
                assign_rank(guest, rank, attachment, remedy, group)
        except BaseException:
            for worker in workers:
                worker.channel.close()
            for _, container in made.values():
                self._testbed.janitor.remove(container)
            raise
        return workers

    def _create(self, name: str, rank: int, attachment: str, group: Group) -> str:
        testbed, image = self._testbed, self._testbed.image_id(group)
        try:
            with testbed.daemon.api() as api:
                settings = options(testbed.folder, name, rank, attachment, group)
                host_config = api.create_host_config(**host_options(testbed.folder, rank, attachment, group))
                return str(
                    api.create_container(image, labels=labels(testbed.run), host_config=host_config, **settings)["Id"]
                )
        except NotFound:
            raise HostError(f"docker: image {image_name(group.image)!r} was removed during the run") from None
        except APIError as error:
            if error.status_code == 409:
                raise HostError(
                    f"docker: a container {name!r} exists that this run did not make, and is left alone; "
                    "rename it, or run again"
                ) from None
            raise HostError(f"docker: worker {rank}: {explained(error)}") from None

    def _start(self, container: str, group: Group) -> None:
        try:
            with self._testbed.daemon.api() as api:
                api.start(container)
        except APIError as error:
            raise HostError(f"docker: {_why_not_started(explained(error), group, self._testbed.folder)}") from None

    def _await(self, name: str, container: str, rank: int, group: Group) -> Guest:
        """Wait for the worker of a container to report. Raises: HostError, WorkerDied."""
        for _ in range(int(_REPORT_S / _LOOK_S)):
            guest = self._testbed.door.take(name, _LOOK_S)
            if guest is not None:
                return guest
            if self.ended.is_set():
                raise HostError("the run has ended")
            state = self._testbed.daemon.state(container)
            if state is None or not (state["Running"] or state["Status"] == "created"):
                how = how_it_ended(self._testbed.daemon, container, group.memory_bytes)
                if state is None or "exited with status" not in how:
                    raise WorkerDied(rank, how)
                line = self._testbed.daemon.last_line(container)
                raise HostError(": ".join([f"docker: image {image_name(group.image)!r}: worker {rank}{how}", *line]))
        raise HostError(f"docker: worker {rank} did not report within {_REPORT_S:.0f} s")


def image_name(name: str | None) -> str:
    """Return the image of containers: the one in the spec, else in WANBENCH_IMAGE, else ours."""
    return name or os.environ.get("WANBENCH_IMAGE") or IMAGE


def options(folder: Path, name: str, rank: int, attachment: str, group: Group) -> dict[str, Any]:
    """Return the options for a container's process."""
    uid, gid = worker_ids()
    return {
        "name": name,
        "entrypoint": list(ENTRYPOINT),
        # Only programs need names of hosts.
        "command": ["--socket", str(folder / "workers.sock"), "--name", name, *(["--programs"] if group.hosts else [])],
        # Only root can open a TUN device. The worker then drops to the user itself. A namespace needs no privilege.
        "user": "0:0" if attachment == "tun" else f"{uid}:{gid}",
        "environment": {**_SINGLE_THREADED, "PYTHONUNBUFFERED": "1"},
        "hostname": group.hosts[rank] if group.hosts else None,
        "healthcheck": Healthcheck(test=["NONE"]),  # an image's own would disturb the measurement
    }


def host_options(folder: Path, rank: int, attachment: str, group: Group) -> dict[str, Any]:
    """Return the options for a container's environment, with the fewest privileges that its worker needs."""
    tun = attachment == "tun"
    gpus = group.gpus[rank % len(group.gpus)].split(",") if group.gpus else []
    # A worker that makes its device sets the congestion control of the route. The kernel refuses some in a sysctl.
    settings = {key: value for key, value in group.tcp if not (tun and group.congestion and key == "congestion")}
    sysctls = {f"net.ipv4.{name}": text for name, text in tcp_sysctls(settings).items()}
    if Path("/proc/sys/net/ipv6").is_dir():  # neighbour discovery would cross the emulated network; `lo` keeps ::1
        sysctls["net.ipv6.conf.default.disable_ipv6"] = "1"
    return {
        "network_mode": "none",
        "extra_hosts": {name: worker_address(number) for number, name in enumerate(group.hosts)},
        "init": False,  # the worker is process 1, and can end all others
        "cap_drop": ["ALL"],
        "cap_add": ["NET_ADMIN", "SETUID", "SETGID"] if tun else [],
        "devices": ["/dev/net/tun:/dev/net/tun:rw"] if tun else [],
        "security_opt": ["no-new-privileges"],
        "sysctls": sysctls,
        "mounts": [
            *(Mount(str(m.target), str(m.source), type="bind", read_only=not m.writable) for m in group.mounts),
            Mount(target=str(folder), source=str(folder), type="bind"),
            *mounts(),
        ],
        # As `docker run --gpus` would.
        "device_requests": [DeviceRequest(driver="", device_ids=gpus, capabilities=[["gpu"]])] if gpus else [],
        "mem_limit": group.memory_bytes,
        "memswap_limit": group.memory_bytes,  # memory and swap together, so nothing is swapped out
        "cpuset_cpus": group.cpuset[rank % len(group.cpuset)] if group.cpuset else None,
        "log_config": LogConfig(type=LogConfig.types.JSON, config={"max-size": "1m"}),
    }


def _why_not_started(reason: str, group: Group, folder: Path) -> str:
    """Translate the daemon's reason into a clearer one if we know the cause."""
    if "tcp_congestion_control" in reason:
        congestion = str(dict(group.tcp)["congestion"])
        return congestion_refused(congestion, errno.ENOENT if "no such file" in reason else errno.EPERM)
    if "could not select device driver" in reason:
        return (
            "the daemon has no support for GPUs: install nvidia-container-toolkit, then "
            "`sudo nvidia-ctk runtime configure --runtime=docker` and `sudo systemctl restart docker`"
        )
    if "bind source path does not exist" in reason and str(folder) not in reason:
        return reason.rpartition("invalid mount config for type ")[2]
    if "bind source path does not exist" in reason:
        return f"the daemon does not see {folder}; name a folder that both can see: TMPDIR=... wanbench run ..."
    wrapping = r"^failed to create (?:shim|task)[^:]*: |OCI runtime create failed: |runc create failed: "
    return f"a container does not start: {re.sub(wrapping, '', reason)}"


_THERE = Path("/wanbench")
_START = (
    "import os, runpy, sys; "
    f"sys.path.append('{_THERE}'); "
    f"os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, [os.environ.get('PYTHONPATH'), '{_THERE}'])); "
    "runpy.run_module('wanbench.workloads.process.container', run_name='__main__', alter_sys=True)"
)
ENTRYPOINT = ("python3", "-c", _START)  # the image's own modules come first


def mounts() -> list[Mount]:
    """The mounts of the package and, in a checkout, of the folders to which its links lead."""
    package = Path(wanbench.__file__).resolve().parent
    linked = [package / name for name in ("workloads", "netprofiles") if (package / name).is_symlink()]
    return [
        Mount(target=str(_THERE / folder.name), source=str(folder.resolve()), type="bind", read_only=True)
        for folder in (package, *linked)
    ]
