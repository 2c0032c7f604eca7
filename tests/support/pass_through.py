"""A negative control, the naive implementation: late averages are fed through the optimiser."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import ClassVar

from wanbench.workloads.algorithms.base import Algorithm, Promises, at_least


@dataclass
class PassThrough(Algorithm):
    """Feed g_n + (gbar_{n-D} - g_{n-D}) to the optimiser: right without momentum, wrong with it."""

    kind: ClassVar[str] = "pass-through"
    promises: ClassVar[Promises] = Promises(agrees=True, exact=True, keeps_mean=True)

    delay: int = field(metadata=at_least(1))

    @property
    def delay_steps(self):
        return self.delay

    def start(self, replica):
        super().start(replica)
        self.sent = deque()

    def gradient(self, g):
        own, message = g.clone(), g.clone()
        self.sent.append((own, message, self.replica.comm.all_reduce(message)))
        return g.add_(self.late()) if len(self.sent) > self.delay else g

    def finish(self):
        optimizer = self.replica.optimizer
        while self.sent:
            self.replica.w.add_(self.late(), alpha=-optimizer.lr / (1 - optimizer.momentum))

    def late(self):
        own, message, work = self.sent.popleft()
        work.wait()
        return message.add_(own, alpha=-1.0)
