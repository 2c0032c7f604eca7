"""What the buffers of hosts do to the step times of an answer: Linux as it is installed, beside large buffers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
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


class Comparison:
    """The cells of settings on the other hosts. Buffers k times as large stand for k connections.

    Args:
        question: what is asked. settings: those that people compare.

    Attributes:
        path: of which one connection of the kernel takes the smallest share; None if it fills all.
    """

    def __init__(self, question: Question, settings: Iterable[Measured]) -> None:
        self._question, self._cells = question, [measured.candidate.cell for measured in settings]
        self._asked = question.reference.tcp.preset
        self._kernel = _STOCK if self._asked == _TUNED else self._asked
        self._other = self._kernel if self._asked == _TUNED else _TUNED
        self.path = bottleneck(question.reference.emulated_network, KERNELS[self._kernel])

    @property
    def _connections(self) -> int:
        assert self.path is not None
        return min(MOST_CONNECTIONS, math.ceil(self.path.rate_bps / self.path.carried_bps))

    def plan(self) -> Plan:
        """What is to be simulated."""
        several = [cell for cell in self._cells if _opens_several(cell)]
        cells = [self._question.one_worker, *map(self._elsewhere, self._cells), *map(self._shared, several)]
        spec = self._question.spec.model_copy(update={"name": f"{self._question.spec.name[:70]}-{self._other}"})
        return Plan(spec, tuple({cell.key: cell for cell in cells}.values()), part=True)

    def hosts(self, times: Mapping[str, float]) -> Hosts:
        """The answer to the plan, whose step times are known by the key of their cells."""
        assert self.path is not None
        step_s, shared_s = (
            {cell.key: times[key] for cell in self._cells if (key := on(cell).key) in times}
            for on in (self._elsewhere, self._shared)
        )
        return Hosts(self._kernel, self.path, self._asked, self._other, self._connections, step_s, shared_s)

    def _elsewhere(self, cell: TrainingCell) -> TrainingCell:
        return _with_tcp(cell, {"preset": self._other})

    def _shared(self, cell: TrainingCell) -> TrainingCell:
        kernel, count = KERNELS[self._kernel], self._connections
        sizes = {"receive_buffer": Size(count * kernel.receive), "send_buffer": Size(count * kernel.send)}
        return _with_tcp(cell, {"preset": self._kernel, **sizes})


def _opens_several(cell: TrainingCell) -> bool:
    """Whether the collective of a setting can spread an operation over connections, as the group `wan` does."""
    return cell.algorithm().promises.lawful and cell.collective in ("direct", "hierarchical")


def _with_tcp(cell: TrainingCell, changes: Mapping[str, object]) -> TrainingCell:
    table = cell.network.table
    table = table.model_copy(update={"tcp": table.tcp.model_copy(update=changes)})
    return replace(cell, network=replace(cell.network, table=table), asked_window=_WINDOW_STEPS)
