"""What the buffers of hosts do to the step times of an answer: Linux as it is installed, beside large buffers."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from wanbench.harness.advise.question import Question
from wanbench.harness.advise.ranking import Measured
from wanbench.harness.plan.cell import TrainingCell
from wanbench.harness.plan.host_tcp import KERNELS, Bottleneck, bottleneck
from wanbench.harness.plan.plan import Plan
from wanbench.netprofiles import Size
from wanbench.workloads.comm.windows import MOST_CONNECTIONS

_STOCK, _TUNED = "stock-6.1", "tuned"
_WINDOW_STEPS = 20  # where windows bind, every packet is simulated


@dataclass(frozen=True)
class Hosts:
    """Step times on the hosts that the question does not have, in seconds.

    Attributes:
        kernel: whose buffers limit connections. path: of which one connection takes the smallest share.
        asked, other: the presets of the question and of these times; one is the kernel, one is tuned.
        connections: as many as fill the path, at most 16.
        step_s: by the key of each setting's cell. shared_s: on the kernel with `connections` to each peer, for those
            whose collective can open several.
    """

    kernel: str
    path: Bottleneck
    asked: str
    other: str
    connections: int
    step_s: Mapping[str, float]
    shared_s: Mapping[str, float]


def on_other_hosts(
    question: Question, settings: Iterable[Measured], step_times: Callable[[Plan], Mapping[str, float]]
) -> Hosts | None:
    """Measure settings on the other hosts; None if one connection of the kernel fills every path.

    Buffers k times as large stand for k connections.

    Args:
        settings: those that people compare. step_times: measures a plan, and returns seconds by the key of each cell.
    """
    asked = question.reference.tcp.preset
    kernel, other = (_STOCK, _STOCK) if asked == _TUNED else (asked, _TUNED)
    path = bottleneck(question.reference.emulated_network, KERNELS[kernel])
    if path is None:
        return None
    count = min(MOST_CONNECTIONS, math.ceil(path.rate_bps / path.carried_bps))
    several = {
        "preset": kernel,
        "receive_buffer": Size(count * KERNELS[kernel].receive),
        "send_buffer": Size(count * KERNELS[kernel].send),
    }
    cells = [measured.candidate.cell for measured in settings]
    elsewhere = {cell.key: _with_tcp(cell, {"preset": other}) for cell in cells}
    # Their collectives can spread an operation over connections, as the group `wan` does.
    spread = [c for c in cells if c.algorithm().promises.follows_law and c.collective in ("direct", "hierarchical")]
    shared = {cell.key: _with_tcp(cell, several) for cell in spread}
    planned = {cell.key: cell for cell in (question.one_worker, *elsewhere.values(), *shared.values())}
    spec = question.spec.model_copy(update={"name": f"{question.spec.name[:70]}-{other}"})
    times = step_times(Plan(spec, tuple(planned.values()), part=True))
    step_s, shared_s = (
        {key: times[cell.key] for key, cell in moved.items() if cell.key in times} for moved in (elsewhere, shared)
    )
    return Hosts(kernel, path, asked, other, count, step_s, shared_s)


def _with_tcp(cell: TrainingCell, changes: Mapping[str, object]) -> TrainingCell:
    table = cell.network.table
    table = table.model_copy(update={"tcp": table.tcp.model_copy(update=changes)})
    return replace(cell, network=replace(cell.network, table=table), asked_window=_WINDOW_STEPS)
