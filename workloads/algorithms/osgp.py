"""Overlap SGP: shares are added on arrival, up to D steps late."""

from __future__ import annotations

from dataclasses import dataclass, field

from wanbench.workloads.algorithms.base import Promises, at_least
from wanbench.workloads.algorithms.sgp import FOREVER, PushSum


@dataclass
class OSGP(PushSum):
    """SGP that hides latency: shares can arrive up to D steps late.

    A step waits only for the shares of D steps ago. At the end of each step, node i adds the shares that have arrived::

        (x_i, omega_i) <- s (x_i, omega_i) + sum of the shares that arrived ;  z_i = x_i / omega_i

    The weight omega travels with its share, shape (numel + 1,), so z_i is correct whenever the share arrives. Messages
    of `gloo` cannot be polled: there, shares are added when they are due.

    Attributes:
        delay: D, in steps; 1 or more.
        peers: m, out-neighbours per step; 1 or more, below the number of workers.
        wait: maximum wait for each share that is due, such as "200ms"; "forever" is unlimited.
    """

    kind = "osgp"
    source = "Assran, Loizou, Ballas and Rabbat, Stochastic Gradient Push, ICML 2019 (overlap SGP)"
    symbols = {"delay": "tau", "peers": "peers per iteration"}  # noqa: RUF012

    delay: int = field(default=1, metadata=at_least(1))
    peers: int = field(default=1, metadata=at_least(1))
    wait: str = FOREVER

    @property
    def promises(self) -> Promises:
        """Shares are added on arrival, so timing changes the result."""
        return Promises(repeats=False, goes_on=self.wait_s is not None)

    @property
    def delay_steps(self) -> int:
        """D."""
        return self.delay
