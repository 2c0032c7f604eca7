"""The testbeds that workers run in.

Layout
    base.py       Testbed, Slot: the interface; Group, Training: what a repetition needs
    group.py      the group of a repetition
    messages.py   what workers may say: the schema of every message
    slot.py       workers that are processes, with their own emulator, in namespaces or containers
    training.py   how such workers train, and which of them are there
    player.py     how their network changes during training
    netns.py      processes in network namespaces
    docker/       containers: started by us through the daemon, or already running (adopted)
    virtual/      a simulated clock and network
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from wanbench.harness.emulators.choice import Home
from wanbench.harness.errors import HostError

if TYPE_CHECKING:
    from wanbench.harness.testbeds.base import Testbed


def adopted() -> Path | None:
    """The folder in which containers started by others wait for us, or None."""
    folder = os.environ.get("WANBENCH_ADOPT")
    return Path(folder) if folder else None


def chosen() -> str:
    """The testbed that `auto` selects here."""
    return "netns" if adopted() is None else "docker"


def home_of(name: str) -> Home:
    """What the workers of this testbed run in, for an emulator."""
    if name != "docker":
        return "processes"
    return "containers" if adopted() is None else "adopted"


def side_by_side(limit: int) -> int:
    """The number of repetitions that can run at a time, at most `limit`. Adopted workers are one group."""
    return limit if adopted() is None else 1


def contained(name: str) -> bool:
    """Whether workers see an image's files and environment, and only the mounted folders of this host."""
    return name == "docker"


def simulated(name: str) -> bool:
    """Whether this host does not affect the results. Only trainings run, and nothing is probed or judged."""
    return name == "virtual"


def check(name: str, images: Iterable[str | None] = ()) -> None:
    """Check that this host can run a testbed.

    Args:
        images: the images of its containers; None is the default one.

    Raises:
        HostError: it cannot. The message has the remedy.
    """
    shared = adopted()
    if name == "netns" and shared is not None:
        raise HostError("testbed 'netns': workers run in containers here (WANBENCH_ADOPT is set); use --testbed docker")
    if name == "docker" and shared is not None:
        from wanbench.harness.testbeds.docker import adopt

        adopt.check(shared)
    elif name == "docker":
        from wanbench.harness.testbeds.docker.daemon import usable
        from wanbench.harness.testbeds.docker.testbed import image_name

        with closing(usable()) as daemon:
            for image in dict.fromkeys(map(image_name, images)):
                daemon.image_id(image)


def opened(name: str, control: Path, slots: int = 1, *, trains: bool = True) -> Testbed:
    """Start the testbed of this name.

    Args:
        control: folder for its logs, which is shared with its workers.
        slots: how many of its slots are used at a time.
        trains: whether its workers will train; False if they will only run programs, which is faster to start.

    Raises:
        HostError: it cannot start.
    """
    if name == "virtual":
        from wanbench.harness.testbeds.virtual.testbed import VirtualTestbed

        return VirtualTestbed(slots)
    if name == "netns":
        from wanbench.harness.testbeds.netns import NetnsTestbed

        return NetnsTestbed(control, trains=trains)
    if (shared := adopted()) is not None:
        from wanbench.harness.testbeds.docker.adopt import AdoptedTestbed

        return AdoptedTestbed(control, shared)
    from wanbench.harness.testbeds.docker.testbed import DockerTestbed

    return DockerTestbed(control)
