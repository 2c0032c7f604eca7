"""What workers run in.

Layout
    base.py     Testbed, Slot, WorkerHandle: the interface; Group: what a cell asks for
    slot.py     workers with an emulator of their own, whatever they live in
    netns.py    processes in network namespaces
    docker.py   containers that the Docker daemon makes for us
    adopt.py    containers that are there already, as docker-compose.yml starts them
    containers.py        what workers in containers have in common, whoever starts them
    docker_host.py       the daemon; docker_door.py, docker_janitor.py, docker_end.py: how containers report, are
                         removed, and ended
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from wanbench.harness.emulators.choice import Home
from wanbench.harness.errors import HostError
from wanbench.harness.testbeds.base import Testbed

TESTBEDS = ("netns", "docker")


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


def check(name: str, images: Iterable[str | None] = ()) -> None:
    """Refuse in one line a testbed that this host cannot run.

    Args:
        images: what its containers shall run; None is the default.

    Raises:
        HostError: with the remedy.
    """
    if name == "docker" and (shared := adopted()) is not None:
        from wanbench.harness.testbeds.docker import adopt

        adopt.check(shared)
    elif name == "docker":
        from wanbench.harness.testbeds.docker.daemon import usable
        from wanbench.harness.testbeds.docker.testbed import image_name

        with closing(usable()) as daemon:
            for image in dict.fromkeys(map(image_name, images)):
                daemon.image_id(image)
    elif adopted() is not None:
        raise HostError(f"testbed {name!r}: workers are in containers here; use --testbed docker")


def opened(name: str, control: Path) -> Testbed:
    """Start the testbed of this name. `control` takes its logs, and is shared with its workers. Raises: HostError."""
    if name == "docker" and (shared := adopted()) is not None:
        from wanbench.harness.testbeds.docker.adopt import AdoptedTestbed

        return AdoptedTestbed(control, shared)
    if name == "docker":
        from wanbench.harness.testbeds.docker.testbed import DockerTestbed

        return DockerTestbed(control)
    from wanbench.harness.testbeds.netns import NetnsTestbed

    return NetnsTestbed(control)
