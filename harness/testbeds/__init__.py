"""The testbeds that workers run in.

Layout
    base.py       Testbed, Slot: the interface; Group, Training: what a repetition needs
    group.py      the group of a repetition
    slot.py       workers that are processes, with their own emulator, in namespaces or containers
    training.py   how such workers train, and which of them are there
    player.py     how their network changes during training
    netns.py      processes in network namespaces
    docker/       containers: started by us through the daemon, or already running (adopted)
    virtual/      a simulated clock and network
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wanbench.harness.emulators.choice import Home
from wanbench.harness.errors import HostError

if TYPE_CHECKING:
    from wanbench.harness.testbeds.base import Testbed


@dataclass(frozen=True)
class Kind:
    """A testbed before it is started.

    Attributes:
        start: starts it with a folder for its logs, which is shared with its workers, the number of slots that are
            used at a time, and whether it trains. Raises: HostError.
        check: checks that this host can run it, given the images of the cells. Raises: HostError.
        contained: workers see an image's files and environment, and only the mounted folders of this host.
        simulated: this host does not affect the results. Only trainings run, and nothing is probed or judged.
    """

    start: Callable[[Path, int, bool], Testbed]
    check: Callable[[Iterable[str | None]], None]
    contained: bool = False
    simulated: bool = False


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
    """Whether workers see an image's files instead of this host's."""
    return _KINDS[name].contained


def simulated(name: str) -> bool:
    """Whether this testbed is simulated, so that this host does not affect the results."""
    return _KINDS[name].simulated


def check(name: str, images: Iterable[str | None] = ()) -> None:
    """Check that this host can run a testbed.

    Args:
        images: the images of its containers; None is the default one.

    Raises:
        HostError: it cannot. The message has the remedy.
    """
    _KINDS[name].check(images)


def opened(name: str, control: Path, slots: int = 1, *, trains: bool = True) -> Testbed:
    """Start the testbed of this name.

    Args:
        control: folder for its logs, which is shared with its workers.
        slots: how many of its slots are used at a time.
        trains: whether its workers will train; False if they will only run programs, which is faster to start.

    Raises:
        HostError: it cannot start.
    """
    return _KINDS[name].start(control, slots, trains)


def _start_netns(control: Path, slots: int, trains: bool) -> Testbed:
    from wanbench.harness.testbeds.netns import NetnsTestbed

    return NetnsTestbed(control, trains=trains)


def _start_docker(control: Path, slots: int, trains: bool) -> Testbed:
    if (shared := adopted()) is not None:
        from wanbench.harness.testbeds.docker.adopt import AdoptedTestbed

        return AdoptedTestbed(control, shared)
    from wanbench.harness.testbeds.docker.testbed import DockerTestbed

    return DockerTestbed(control)


def _start_virtual(control: Path, slots: int, trains: bool) -> Testbed:
    from wanbench.harness.testbeds.virtual.testbed import VirtualTestbed

    return VirtualTestbed(slots)


def _check_netns(images: Iterable[str | None]) -> None:
    if adopted() is not None:
        raise HostError("testbed 'netns': workers run in containers here (WANBENCH_ADOPT is set); use --testbed docker")


def _check_docker(images: Iterable[str | None]) -> None:
    if (shared := adopted()) is not None:
        from wanbench.harness.testbeds.docker import adopt

        return adopt.check(shared)
    from wanbench.harness.testbeds.docker.daemon import usable
    from wanbench.harness.testbeds.docker.testbed import image_name

    with closing(usable()) as daemon:
        for image in dict.fromkeys(map(image_name, images)):
            daemon.image_id(image)


_KINDS = {
    "netns": Kind(_start_netns, _check_netns),
    "docker": Kind(_start_docker, _check_docker, contained=True),
    "virtual": Kind(_start_virtual, lambda images: None, simulated=True),
}
TESTBEDS = tuple(name for name, kind in _KINDS.items() if not kind.simulated)
