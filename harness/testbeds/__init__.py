"""What workers run in.

Layout
    base.py       Testbed, Slot, WorkerHandle: the interface; Group, Training: what a cell asks for
    slot.py       workers that are processes, with an emulator of their own, whatever they live in
    training.py   how such workers train; player.py: how their network changes meanwhile
    netns.py      processes in network namespaces
    docker/       containers: those that the daemon makes for us, and those that are there already
    virtual/      a clock and a network that are computed
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
        start: with a folder that takes its logs and is shared with its workers. Raises: HostError.
        check: refuses in one line what this host cannot run; takes the images of the cells. Raises: HostError.
        contained: workers see an image's files and environment, and of this host's folders those that are mounted.
        simulated: nothing of this host has a say in what is measured: nothing is probed or judged, only trainings run.
    """

    start: Callable[[Path], Testbed]
    check: Callable[[Iterable[str | None]], None]
    contained: bool = False
    simulated: bool = False


def adopted() -> Path | None:
    """The folder where containers wait that somebody else started; None if there are none."""
    folder = os.environ.get("WANBENCH_ADOPT")
    return Path(folder) if folder else None


def chosen() -> str:
    """What `testbed = "auto"` means here."""
    return "netns" if adopted() is None else "docker"


def home_of(name: str) -> Home:
    """What the workers of this testbed are to an emulator."""
    if name != "docker":
        return "processes"
    return "containers" if adopted() is None else "adopted"


def side_by_side(limit: int) -> int:
    """How many repetitions may run at a time: adopted workers are one group."""
    return limit if adopted() is None else 1


def contained(name: str) -> bool:
    """True if workers see an image's files instead of this host's."""
    return _KINDS[name].contained


def simulated(name: str) -> bool:
    """True if nothing of this host has a say in what is measured."""
    return _KINDS[name].simulated


def check(name: str, images: Iterable[str | None] = ()) -> None:
    """Refuse in one line a testbed that this host cannot run.

    Args:
        images: what its containers shall run; None is the default.

    Raises:
        HostError: with the remedy.
    """
    _KINDS[name].check(images)


def opened(name: str, control: Path) -> Testbed:
    """Start the testbed of this name. `control` takes its logs, and is shared with its workers. Raises: HostError."""
    return _KINDS[name].start(control)


def _start_netns(control: Path) -> Testbed:
    from wanbench.harness.testbeds.netns import NetnsTestbed

    return NetnsTestbed(control)


def _start_docker(control: Path) -> Testbed:
    if (shared := adopted()) is not None:
        from wanbench.harness.testbeds.docker.adopt import AdoptedTestbed

        return AdoptedTestbed(control, shared)
    from wanbench.harness.testbeds.docker.testbed import DockerTestbed

    return DockerTestbed(control)


def _start_virtual(control: Path) -> Testbed:
    from wanbench.harness.testbeds.virtual.testbed import VirtualTestbed

    return VirtualTestbed()


def _check_netns(images: Iterable[str | None]) -> None:
    if adopted() is not None:
        raise HostError("testbed 'netns': workers are in containers here; use --testbed docker")


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
