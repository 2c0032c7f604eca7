"""Workers in containers started by others, as docker-compose.yml does. The controller runs in a container, too.

All containers share the folder that WANBENCH_ADOPT names. Workers wait there for the controller, each with the name of
a site. A worker that is no longer needed ends. Its container is then restarted, and the worker reports again.
"""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Sequence
from pathlib import Path

from wanbench.harness.errors import HostError
from wanbench.harness.process.owner import locked
from wanbench.harness.testbeds.base import Group, WorkerDied
from wanbench.harness.testbeds.docker.containers import ContainerStarter, ContainerWorker, Door, Guest, assign_rank
from wanbench.harness.testbeds.slot import SlotTestbed

_RETURN_S = 30.0  # time for a restarted container to report again


class AdoptedWorker(ContainerWorker):
    """A worker in a container that others started."""

    def __init__(self, rank: int, guest: Guest) -> None:
        super().__init__(rank, guest.channel)
        self.site = guest.name

    def failure(self) -> WorkerDied:
        """Return an error that it ended. Only the owner of the container can see how."""
        return WorkerDied(self.rank, f" ended with its container {self.site}: docker compose ps --all shows how")

    def request_stack(self) -> None:
        """Do nothing: signals cannot reach its process."""


class AdoptedTestbed(SlotTestbed):
    """Uses the workers that report in the shared folder, for one slot.

    Args:
        control: folder in which workers find each other; must be in the shared folder.
        shared: folder that WANBENCH_ADOPT names, which `check` accepts.

    Raises:
        HostError: another controller uses the folder.
    """

    def __init__(self, control: Path, shared: Path) -> None:
        self._lock = (shared / "controller.lock").open("w")
        if not locked(self._lock, fcntl.LOCK_EX):
            self._lock.close()
            raise HostError(f"{shared}: another wanbench uses the workers here; wait until it has ended")
        (shared / "controller.sock").unlink(missing_ok=True)  # left by a controller that was killed
        control.chmod(0o1777)  # only the containers see it, and workers of a root controller are not root
        self.door = Door(shared / "controller.sock")
        self._starter = AdoptedStarter(self.door)
        super().__init__()

    def starter(self) -> AdoptedStarter:
        """Return the only starter: all containers report at one door."""
        return self._starter

    def kill(self) -> None:
        """Close all connections. With the door closed, workers do not report again."""
        self.door.close()
        self._starter.kill()
        super().kill()

    def close(self) -> None:
        """Release the workers."""
        super().close()
        self._lock.close()


class AdoptedStarter(ContainerStarter):
    """Assigns ranks to workers that wait at the door."""

    def __init__(self, door: Door) -> None:
        super().__init__()
        self._door = door
        self._assigned: list[tuple[str, str]] = []  # by rank: the wanted site, the container's site

    def serves(self, running: Group, requested: Group) -> bool:
        """Whether TCP and names are right, and no worker is in another site's container although its site has some."""
        return running.is_fixed_like(requested) and all(
            site in assigned or site not in self._door.names
            for site, assigned in zip(requested.sites, self._assigned, strict=False)
        )

    def launch(self, ranks: Sequence[int], attachment: str, group: Group) -> list[ContainerWorker]:
        """Return workers of these ranks, in containers of their sites if possible."""
        if group.image or group.memory_bytes or group.cpuset or group.mounts or group.gpus:
            raise HostError(
                "containers: image, memory, cpuset, mounts and GPUs cannot be changed for running containers; "
                "set them where the containers are started, e.g. in docker-compose.yml"
            )
        waiting = self._door.wait_for(len(ranks), _RETURN_S)
        if waiting < len(ranks):
            raise HostError(
                f"a cell needs {group.workers} workers, and {ranks[0] + waiting} containers have reported; start more, "
                "such as: docker compose up --scale oregon=2, or keep to smaller cells with --only workers=..."
            )
        guests = {rank: guest for rank in ranks if (guest := self._door.take(group.sites[rank], 0.0)) is not None}
        for rank in ranks:
            guest = guests.get(rank) or self._door.take(None, _RETURN_S)
            if guest is None:
                raise HostError(f"worker {rank}: its container ended before it could start")
            guests[rank] = guest
            assign_rank(guest, rank, attachment, "build both again: docker compose build", group, hosts=group.hosts)
        self._assigned[ranks[0] :] = [(group.sites[rank], guests[rank].name) for rank in ranks]
        return [AdoptedWorker(rank, guests[rank]) for rank in ranks]


def check(shared: Path) -> None:
    """Check that a folder can be shared with workers. Raises: HostError, if not."""
    if not shared.is_dir():
        raise HostError(f"WANBENCH_ADOPT={shared}: no such folder; mount the volume of the workers in this container")
    if shared.resolve() not in (here := Path(tempfile.gettempdir()).resolve(), *here.parents):
        raise HostError(f"WANBENCH_ADOPT={shared}: workers must see the temporary files; set TMPDIR={shared}")
