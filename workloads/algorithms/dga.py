"""Delayed Gradient Averaging in its federated form: FedAvg with a barrier that is D steps later."""

from __future__ import annotations

from dataclasses import dataclass, field

from wanbench.workloads.algorithms.base import Compression, at_least
from wanbench.workloads.algorithms.compensated import Compensated


@dataclass
class DGA(Compensated):
    """Federated averaging without waiting: averages arrive D steps late.

    On client j, with u_j the change of w over a round of K local steps, shape (numel,)::

        w_j <- w_j + (ubar - u_j)          D steps after the round, while later steps continue

    D = 0 is FedAvg (local SGD). D can exceed K: then several rounds are in flight, and clients differ by their last
    D to D + K - 1 steps. For SGD without momentum and K = 1 it is `delayed`. The paper does not publish its momentum;
    here momentum is local.

    Attributes:
        delay: D, in steps; 0 or more.
        period: K, local steps per round; 1 or more.
        compression: compressor of a round's change; "none" sends all of it.
    """

    kind = "dga"
    source = "Zhu, Lin, Lu, Lin and Han, Delayed Gradient Averaging, NeurIPS 2021"
    symbols = {"delay": "D", "period": "K"}  # noqa: RUF012
    examples = ({"delay": 5, "period": 3}, {"delay": 2, "period": 3, "compression": "topk"})
    model_space = True

    delay: int = field(metadata=at_least(0))
    period: int = field(metadata=at_least(1))
    compression: Compression = "none"
