"""CoCoD-SGD: local SGD whose average is computed while the next p steps run."""

from __future__ import annotations

from dataclasses import dataclass, field

from wanbench.workloads.algorithms.base import Compression, at_least
from wanbench.workloads.algorithms.compensated import Compensated


@dataclass
class CoCoD(Compensated):
    """Local SGD that hides latency: averages while the next p steps run.

    Every p steps x <- (mean of x as sent p steps ago) + (x now - x as sent). Equivalently, worker j sends u_j, the
    change of x over its last p steps, shape (numel,)::

        x_j <- x_j + (ubar - u_j)          p steps after u_j was sent

    This is DTS in model space with D = p. Momentum is local.

    Attributes:
        period: p, in steps; 1 or more. It is also the delay.
        compression: compressor of the change; "none" sends all of it.
    """

    kind = "cocod"
    source = "Shen, Xu, Liu, Chen and Cheng, Faster Distributed Deep Net Training (CoCoD-SGD), IJCAI 2019"
    symbols = {"period": "k"}  # noqa: RUF012
    examples = ({"period": 4},)
    model_space = True

    period: int = field(metadata=at_least(1))
    compression: Compression = "none"

    @property
    def delay_steps(self) -> int:
        """D = p."""
        return self.period
