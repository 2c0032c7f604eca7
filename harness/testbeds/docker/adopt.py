"""Workers in containers that somebody else started, as docker-compose.yml does; the controller is in one, too.

The folder that WANBENCH_ADOPT names is shared by all of them. Workers wait there for the controller, each with the name
of a site; one that is given up ends, its container is started again, and it comes back.
"""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Sequence
from pathlib import Path

from wanbench.harness.errors import HostError
from wanbench.harness.testbeds.base import Group, WorkerDied
from wanbench.harness.testbeds.docker.containers import ContainerStarter, ContainerWorker, give_part
from wanbench.harness.testbeds.docker.door import Door, Guest
from wanbench.harness.testbeds.slot import SlotTestbed

_COME_S = 30.0  # for a container that has been given up to come back


class AdoptedWorker(ContainerWorker):
    """A worker in a container that is not ours."""

    def __init__(self, rank: int, guest: Guest) -> None:
        super().__init__(rank, guest.channel)
        self.site = guest.name

    def epitaph(self) -> WorkerDied:
        """That it ended; how, only the container's owner can see."""
        return WorkerDied(self.rank, f" ended with its container {self.site}: docker compose ps --all tells how")

    def ask_where(self) -> None:
        """Its process is out of reach for signals."""

    def is_stopped(self) -> bool:
        """Unknown here."""
        return False


class AdoptedTestbed(SlotTestbed):
    """Takes in what reports to the folder, for one slot.

    Args:
        control: where workers find each other; it must be in the shared folder.
        shared: the folder that WANBENCH_ADOPT names.

    Raises:
        HostError: the folder is not shared, or another controller uses it.
    """

    def __init__(self, control: Path, shared: Path) -> None:
        check(shared)
        self._lock = (shared / "controller.lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise HostError(f"{shared}: another wanbench has adopted the workers here; wait for it") from None
        (shared / "controller.sock").unlink(missing_ok=True)  # of one that was killed
        control.chmod(0o1777)  # only the containers see it, and workers of a root controller are not root
        self.door = Door(shared / "controller.sock")
        self._starter = AdoptedStarter(self.door)
        super().__init__()

    def starter(self) -> AdoptedStarter:
        """The one there is: all containers wait at one door."""
        return self._starter

    def kill(self) -> None:
        """Hang up on every worker; with the door closed they know that nobody wants them back."""
        self.door.close()
        self._starter.kill()
        super().kill()

    def close(self) -> None:
        """Let the workers go."""
        super().close()
        self._lock.close()


class AdoptedStarter(ContainerStarter):
    """Gives parts to workers that wait at the door."""

    def __init__(self, door: Door) -> None:
        super().__init__()
        self._door = door
        self._places: list[tuple[str, str]] = []  # by rank: the site that was wanted, the container's

    def image(self, group: Group) -> str | None:
        """Unknown from the inside."""
        return None

    def serves(self, running: Group, wanted: Group) -> bool:
        """Unless a worker sits in the container of another site than it should, and could sit in the right one."""
        return all(
            site in places or site not in self._door.names
            for site, places in zip(wanted.sites, self._places, strict=False)
        )

    def launch(self, ranks: Sequence[int], attachment: str, group: Group) -> list[ContainerWorker]:
        """Workers of these ranks, as far as possible in containers of their sites."""
        if group.image or group.memory_bytes or group.cpuset or group.mounts or group.gpus:
            raise HostError(
                "containers: image, memory, cpuset, mounts and GPUs of adopted workers are set where they are started"
            )
        waiting = self._door.wait_for(len(ranks), _COME_S)
        if waiting < len(ranks):
            raise HostError(
                f"a cell needs {group.workers} workers, and {ranks[0] + waiting} containers have reported; start more, "
                "such as: docker compose up --scale oregon=2, or keep to smaller cells with --only workers=..."
            )
        guests = {rank: guest for rank in ranks if (guest := self._door.take(group.sites[rank], 0.0)) is not None}
        for rank in ranks:
            guest = guests.get(rank) or self._door.take(None, _COME_S)
            if guest is None:
                raise HostError(f"worker {rank}: its container has gone")
            guests[rank] = guest
            give_part(guest, rank, attachment, "build both again: docker compose build")
        self._places[ranks[0] :] = [(group.sites[rank], guests[rank].name) for rank in ranks]
        return [AdoptedWorker(rank, guests[rank]) for rank in ranks]


def check(shared: Path) -> None:
    """Refuse a folder that cannot be shared with workers. Raises: HostError."""
    if not shared.is_dir():
        raise HostError(f"WANBENCH_ADOPT={shared}: no such folder; mount the volume that the workers have, too")
    if shared.resolve() not in (here := Path(tempfile.gettempdir()).resolve(), *here.parents):
        raise HostError(f"WANBENCH_ADOPT={shared}: workers must see the temporary files; set TMPDIR={shared}")
