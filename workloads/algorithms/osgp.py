"""Overlap SGP: shares are added when they come, up to D steps late."""

from __future__ import annotations

from dataclasses import dataclass, field

from wanbench.workloads.algorithms.base import Promises, at_least
from wanbench.workloads.algorithms.sgp import FOREVER, PushSum


@dataclass
class OSGP(PushSum):
    """SGP that goes on while shares are under way, and waits only for those of D steps ago.

    Node i adds what is there at the end of each step; the weight that travels with a share keeps z_i = x_i / omega_i
    right whenever it comes. With `gloo` nothing can be polled, so shares are added when they are due.

    Attributes:
        delay: D, in steps; 1 or more.
        peers: m, out-neighbours of a step; 1 or more, below the number of workers.
        wait: how long each share that is due is waited for, such as "200ms"; "forever" is as long as it takes.
    """

    kind = "osgp"
    source = "Assran, Loizou, Ballas and Rabbat, Stochastic Gradient Push, ICML 2019 (overlap SGP)"
    symbols = {"delay": "tau", "peers": "peers per iteration"}  # noqa: RUF012

    delay: int = field(default=1, metadata=at_least(1))
    peers: int = field(default=1, metadata=at_least(1))
    wait: str = FOREVER

    @property
    def promises(self) -> Promises:
        """Messages are taken when they are there."""
        return Promises(repeats=False, goes_on=self.wait_s is not None)

    @property
    def delay_steps(self) -> int:
        """D."""
        return self.delay
