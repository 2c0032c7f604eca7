"""Local SGD: average the parameters every p steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from wanbench.workloads.algorithms.base import Compression, at_least
from wanbench.workloads.algorithms.compensated import Compensated


@dataclass
class LocalSGD(Compensated):
    """Every p steps w <- mean_j w_j, waited for; the optimiser's state stays local.

    What travels is u_j, the change of w_j since the last average, shape (numel,), so that it can be compressed::

        w_j <- w_j + (ubar - u_j)

    `sparse` also averages momentum. Any optimiser will do.

    Attributes:
        period: p, in steps; 1 or more.
        compression: what is sent of the change; "none" is all of it.
    """

    kind = "localsgd"
    source = "Stich, Local SGD Converges Fast and Communicates Little, ICLR 2019; McMahan et al. 2017 (FedAvg)"
    symbols = {"period": "H (Stich), E (FedAvg), tau (Wang)"}  # noqa: RUF012
    model_space = True

    period: int = field(metadata=at_least(1))
    compression: Compression = "none"
