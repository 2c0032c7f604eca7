"""`exec --describe`: measure a training script alone on this host, and describe it as a workload by numbers."""

import os
import resource
import shlex
import socket
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from wanbench.harness.errors import HostError, SpecError
from wanbench.workloads.loop.stepping import environment, read_model, read_steps

MIN_STEPS = 20
_SKIPPED = 5  # the first steps allocate memory and warm caches
_NS = 1e9


@dataclass(frozen=True)
class Description:
    """The measured values of a script.

    Attributes:
        params, tensors: number of parameters and tensors of the first optimizer that stepped.
        step_time_s: mean over the measured steps.
        step_cv: standard deviation over mean, without the slowest and the fastest 5 % of the steps.
        steps: number of measured steps.
        memory_mib: largest resident memory of the process.
    """

    params: int
    tensors: int
    step_time_s: float
    step_cv: float
    steps: int
    memory_mib: int

    def to_toml(self, command: Sequence[str]) -> str:
        """Return a `[workload]` table for a spec."""
        printable = shlex.join(command).encode("unicode_escape").decode()
        return (
            f"# Measured alone on this host: {printable}\n"
            f"# {self.steps} steps, {self.memory_mib} MiB of memory\n"
            "[workload]\n"
            f"params = {self.params}\n"
            f"tensors = {self.tensors}\n"
            f'step_time = "{1000 * self.step_time_s:.3f}ms"\n'
            f"step_cv = {self.step_cv:.4f}\n"
        )


def describe(command: Sequence[str], folder: Path) -> Description:
    """Run the command to its end as the only worker of its group, and measure its optimizer's steps.

    Its output is written to stderr, and the times of its steps into the folder.

    Raises:
        HostError: the command does not start, or fails.
        SpecError: it made too few steps, or none that could be seen.
    """
    steps = folder / "steps"
    memory_mib = _run(command, _group_of_one() | environment(steps, hook=True))
    return summarised(read_steps(steps), read_model(steps), memory_mib)


def summarised(ends_ns: Sequence[int], model: Mapping[str, int] | None, memory_mib: int) -> Description:
    """Compute the values from the ends of the steps. Raises: SpecError."""
    if model is None:
        raise SpecError(
            "no step was seen: steps of torch's optimizers are detected, any other loop has to call wanbench.step()"
        )
    durations = [(b - a) / _NS for a, b in pairwise(ends_ns)][_SKIPPED:]
    if len(durations) < MIN_STEPS:
        raise SpecError(
            f"{len(ends_ns)} steps were seen, expected at least {MIN_STEPS + _SKIPPED + 1}; let the script run longer"
        )
    cut = len(durations) // 20
    middle = sorted(durations)[cut : len(durations) - cut]
    mean = statistics.fmean(durations)
    cv = statistics.pstdev(middle) / statistics.fmean(middle)
    return Description(model["params"], model["tensors"], mean, cv, len(durations), memory_mib)


def _group_of_one() -> dict[str, str]:
    """The variables that torchrun would set for a group of one."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return {
        **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"), "1"),
        **dict.fromkeys(("RANK", "LOCAL_RANK", "GROUP_RANK"), "0"),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def _run(command: Sequence[str], added: Mapping[str, str]) -> int:
    """Run the command. Return its largest resident memory in MiB. Raises: HostError."""
    try:
        code = subprocess.run(command, env={**os.environ, **added}, stdout=2).returncode
    except OSError as error:
        raise HostError(f"{command[0]}: {error.strerror}") from None
    if code != 0:
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        raise HostError(f"{command[0]} {how}; nothing was measured")
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
