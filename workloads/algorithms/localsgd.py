"""Local SGD: average the parameters every p steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from wanbench.workloads.algorithms.base import Compression, at_least
from wanbench.workloads.algorithms.compensated import Compensated


@dataclass
class LocalSGD(Compensated):
    """Sends less often: averages the parameters every p steps.

    Every p steps w <- mean_j w_j; each worker waits for it, and the optimiser's state stays local. Worker j sends u_j,
    the change of w_j since the last average, shape (numel,), which can be compressed::

        w_j <- w_j + (ubar - u_j)

    Any optimiser works. `sparse` averages momentum as well.

    Attributes:
        period: p, in steps; 1 or more.
        compression: compressor of the change; "none" sends all of it.
    """

    kind = "localsgd"
    source = "Stich, Local SGD Converges Fast and Communicates Little, ICLR 2019; McMahan et al. 2017 (FedAvg)"
    symbols = {"period": "H (Stich), E (FedAvg), tau (Wang)"}  # noqa: RUF012
    examples = ({"period": 4}, {"period": 4, "compression": "bf16"})
    model_space = True

    period: int = field(metadata=at_least(1))
    compression: Compression = "none"
