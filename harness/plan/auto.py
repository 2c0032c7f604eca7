"""The values of `auto`: chosen once, by the host that runs, and stored with the run. Pure, but for the host."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from wanbench.harness.errors import SpecError
from wanbench.harness.plan.cell import Cell
from wanbench.harness.plan.load import Capacity, Load, makespan
from wanbench.harness.spec.experiment import Spec

SCALES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002)
_LONGER = 1.2  # the experiment may take this much longer than at the smallest scale
_COMPRESSING = 0.05  # of the time on all processors: it lengthens steps, here more than on hosts of their own
_GIB = 2**30
_LAPTOP = Capacity(2, 8 << 30)


class Host(Protocol):
    """Chooses the values of `auto` by what the host can run."""

    def testbed(self) -> str:
        """Return the testbed that `run.testbed = "auto"` chooses."""

    def emulator(self, testbed: str) -> str:
        """Return the emulator that `run.emulator = "auto"` chooses for a testbed."""

    def capacity(self) -> Capacity:
        """Return the processors and memory from which `workload.payload_scale = "auto"` is chosen."""


@dataclass(frozen=True)
class FixedHost:
    """A host with fixed answers."""

    testbed_name: str = "netns"
    emulator_name: str = "relay"
    size: Capacity = _LAPTOP

    def testbed(self) -> str:
        return self.testbed_name

    def emulator(self, testbed: str) -> str:
        return self.emulator_name

    def capacity(self) -> Capacity:
        return self.size


def refuse_gated(spec: Spec, where: str) -> None:
    """Refuse `auto` where a build depends on the results. Raises: SpecError."""
    if spec.workload.payload_scale == "auto":
        raise SpecError(
            f'{where}: workload.payload_scale: "auto" depends on the host, but an experiment with [[gate.require]], or '
            "for `check`, must be the same on every host; name the scale, such as 0.01"
        )


def scale_chosen(
    at: Callable[[float], Sequence[Cell]], capacity: Callable[[], Capacity], earlier: object
) -> tuple[float, str | None]:
    """One scale for all cells of an experiment, and the reason; no reason if it does not depend on the host.

    A scale fits if every cell that is emulated alone keeps to the host's limits, also while all its workers send at
    their rate; if compression hardly lengthens its steps; and if the experiment does not take longer than at the
    smallest scale.

    Args:
        at: the cells of the experiment at a scale. capacity: of the host.
        earlier: the scale that an earlier part of the run chose, if any. It is kept.

    Raises:
        SpecError: the experiment is wrong at any scale.
    """
    if all(cell.testbed == "virtual" for cell in at(1.0)):
        return 1.0, None
    try:
        smallest = at(SCALES[-1])
    except SpecError:  # the workload, or an algorithm, needs the tensors of a model as they are
        return 1.0, None
    if smallest == at(1.0):  # the sweep names its scales
        return 1.0, None
    if isinstance(earlier, float) and earlier in SCALES:
        return earlier, "as chosen when this run began; --fresh chooses again"
    host = capacity()
    limit_s = _LONGER * _seconds([cell.load for cell in smallest], host)
    larger = ""
    for scale in SCALES:
        excess = _excess(at(scale), host, limit_s)
        if excess is None:
            return scale, f"the largest that fits {_in_words(host)}{larger}"
        larger = f"; at {scale:g}, {excess}"
    return SCALES[-1], f"the smallest, but too large for {_in_words(host)}{larger}"


def _excess(cells: Sequence[Cell], host: Capacity, limit_s: float) -> str | None:
    """The first limit that cells exceed, in words; None if they fit."""
    loads = [cell.load for cell in cells]
    for cell, load in zip(cells, loads, strict=True):
        title, here = " ".join(cell.title.split()), load.on(host)
        cpus = max(here.cpus, here.peak_cpus)
        if cell.testbed != "virtual" and cpus > host.cpu_limit:
            return f"{title} keeps {cpus:.2g} processors busy at its peak (limit {host.cpu_limit:.2g})"
        if cell.testbed != "virtual":
            share = cell.compressing_cpus * host.slowness / host.cores
            if share > _COMPRESSING:
                return f"{title} compresses for {share:.0%} of the time (limit {_COMPRESSING:.0%})"
        if load.memory_bytes > host.memory_limit:
            return f"{title} needs {load.memory_bytes / _GIB:.2g} GiB (limit {host.memory_limit / _GIB:.2g})"
    seconds = _seconds(loads, host)
    return f"a repetition of all cells takes {seconds:.3g} s (limit {limit_s:.3g})" if seconds > limit_s else None


def _seconds(loads: Sequence[Load], host: Capacity) -> float:
    """Predicted duration of one repetition of all cells."""
    return makespan(sorted(loads, key=lambda load: -load.seconds), host.slots, host)


def _in_words(host: Capacity) -> str:
    slow = f", {host.slowness:.1f} times as slow as usual," if host.slowness > 1 else ""
    processors = f"{host.cores} processor{'s' * (host.cores > 1)}{slow}"
    return f"{processors} and {host.memory_bytes / _GIB:.1f} GiB of available memory"
