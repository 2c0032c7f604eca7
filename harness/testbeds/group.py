"""The workers that a repetition needs, and their host names."""

import re
import unicodedata
from collections.abc import Sequence

from wanbench.harness.plan.repetition import Repetition
from wanbench.harness.testbeds import contained
from wanbench.harness.testbeds.base import FolderMount, Group
from wanbench.harness.testbeds.docker.mounts import current

_LONGEST = 50  # a host name has at most 63 characters


def group_of(repetition: Repetition, mounts: Sequence[FolderMount] | None = None) -> Group:
    """The workers of a repetition. `mounts` replaces the folders of this host that its containers see."""
    if mounts is None:
        mounts = [current(folder) for folder in repetition.inputs.mounted] if contained(repetition.testbed) else ()
    alone, tcp, containers = repetition.workers == 1, repetition.tcp, repetition.containers
    settings = (
        {}
        if alone
        else {
            "congestion": tcp.congestion,
            "slow_start_after_idle": tcp.slow_start_after_idle,
            **repetition.host_tcp.settings(),
        }
    )
    return Group(
        workers=repetition.workers,
        sites=repetition.sites,
        tcp=tuple(sorted(settings.items())),
        congestion=tcp.congestion,
        mtu=repetition.network.mtu,
        image=containers.image,
        memory_bytes=None if containers.memory is None else containers.memory.bytes,
        cpuset=(containers.cpuset,) if isinstance(containers.cpuset, str) else tuple(containers.cpuset or ()),
        mounts=tuple(mounts),
        hosts=host_names(repetition.sites) if repetition.inputs.command else (),
    )


def host_names(sites: Sequence[str]) -> tuple[str, ...]:
    """The host name of each rank, from the names of its site in any language."""
    return tuple(f"{_label(site)}-{rank}" for rank, site in enumerate(sites))


def _label(site: str) -> str:
    ascii_only = unicodedata.normalize("NFKD", site).encode("ascii", "ignore").decode().lower()
    return re.sub("[^a-z0-9]+", "-", ascii_only)[:_LONGEST].strip("-") or "site"
