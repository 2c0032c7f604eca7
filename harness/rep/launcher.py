"""What a program needs that starts its own processes on other workers: an agent in place of ssh, and a list of hosts.

The variables are those of Open MPI 4 and 5, MPICH and Intel MPI. Other programs find the same in WANBENCH_RSH and
WANBENCH_HOSTFILE.
"""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from wanbench.harness.emulators.plan import DEVICE
from wanbench.harness.process import child


def prepare(folder: Path, hosts: Sequence[str], slots: int, *, contained: bool) -> dict[str, str]:
    """Make the files in a folder that all workers share, and return the variables that name them.

    Args:
        slots: processes on each host.
        contained: whether the workers are containers, with the image's Python.
    """
    sockets(folder).mkdir(parents=True)
    if contained:
        sockets(folder).chmod(0o1777)  # root's containers run as another user
    table, agent = folder / "hosts", folder / "rsh"
    table.write_text("".join(f"{host} slots={slots}\n" for host in hosts))
    (folder / "machines").write_text("".join(f"{host}:{slots}\n" for host in hosts))
    module = "wanbench.workloads.process.agent"
    path = "" if contained else f"PYTHONPATH={shlex.quote(child.environment()['PYTHONPATH'])} "
    python = "python3" if contained else f"{shlex.quote(sys.executable)} -P"
    agent.write_text(f'#!/bin/sh\n{path}exec {python} -m {module} {shlex.quote(str(sockets(folder)))} "$@"\n')
    agent.chmod(0o755)
    return {
        "WANBENCH_RSH": str(agent),
        "WANBENCH_HOSTFILE": str(table),
        "OMPI_MCA_plm_rsh_agent": str(agent),
        "OMPI_MCA_orte_default_hostfile": str(table),
        "OMPI_MCA_btl_tcp_if_include": DEVICE,
        "OMPI_MCA_oob_tcp_if_include": DEVICE,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_plm_ssh_agent": str(agent),
        "PRTE_MCA_prte_default_hostfile": str(table),
        "PRTE_MCA_prte_if_include": DEVICE,
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": str(agent),
        "HYDRA_HOST_FILE": str(folder / "machines"),
        "HYDRA_IFACE": DEVICE,
    }


def sockets(folder: Path) -> Path:
    """The folder of the workers' sockets."""
    return folder / "agents"
