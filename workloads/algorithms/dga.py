"""Delayed Gradient Averaging in its federated form: FedAvg whose barrier moves D steps later."""

from __future__ import annotations

from dataclasses import dataclass, field

from wanbench.workloads.algorithms.base import Compression, at_least
from wanbench.workloads.algorithms.compensated import Compensated


@dataclass
class DGA(Compensated):
    """FedAvg whose average of a round of K local steps is applied D steps later, in place of the own part of it.

    On client j, with u_j what the K steps of a round did to w, shape (numel,)::

        w_j <- w_j + (ubar - u_j)          D steps after the round, while the next ones go on

    D = 0 is FedAvg (local SGD); D may be larger than K, so that several rounds are under way. Clients then differ by
    their last D to D + K - 1 steps. For SGD without momentum and K = 1 it is `delayed`. The momentum of the paper's
    experiments is not published; it is local here.

    Attributes:
        delay: D, in steps; 0 or more.
        period: K, local steps of a round; 1 or more.
        compression: what is sent of a round; "none" is all of it.
    """

    kind = "dga"
    source = "Zhu, Lin, Lu, Lin and Han, Delayed Gradient Averaging, NeurIPS 2021"
    symbols = {"delay": "D", "period": "K"}  # noqa: RUF012
    model_space = True

    delay: int = field(metadata=at_least(0))
    period: int = field(metadata=at_least(1))
    compression: Compression = "none"
