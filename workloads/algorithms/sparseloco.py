"""SparseLoCo: DiLoCo whose pseudo-gradients are the largest values of each chunk, and whose outer step is plain."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from wanbench.workloads.algorithms.base import Algorithm, Compression, at_least, between
from wanbench.workloads.algorithms.diloco import OuterSteps


@dataclass
class SparseLoCo(OuterSteps):
    """Sends very rarely and little: DiLoCo with compressed outer steps.

    On worker k, all vectors of shape (numel,)::

        theta_k <- H steps of the local optimiser from theta
        Delta_k = theta - theta_k
        e_k <- decay e_k + Delta_k                   error feedback, which replaces the outer momentum
        c_k = Q(TopK(e_k)) ;  e_k <- e_k - c_k       of each chunk of e_k, the largest elements, in two bits
        theta <- theta - outer_lr mean_k c_k
        theta_k <- theta

    The local optimiser (AdamW in the paper) keeps its state. With all elements, unquantised, it is DiLoCo with
    momentum 0. An element that a worker does not send counts as 0 in the mean; the authors' code divides by the number
    of workers that send it. `finish` ends a round early.

    Attributes:
        period: H, in steps; 1 or more. The paper has 15 to 100.
        outer_lr: learning rate of the outer step.
        decay: the share of the residual that a round keeps; 1 keeps all of it.
        compression: compressor of e_k; "none" sends all of it, so that no residual is left.
    """

    kind = "sparseloco"
    source = "Sarfi, Therien, Lidin and Belilovsky, Communication Efficient LLM Pre-training with SparseLoCo, 2025"
    when_lost = f"{Algorithm.when_lost}. The outer model is kept, residuals are not"
    symbols = {"period": "H", "outer_lr": "alpha", "decay": "beta"}  # noqa: RUF012
    tried: ClassVar = {"compression": ()}  # its own; without, it is `diloco` without momentum
    examples = ({"period": 4}, {"period": 4, "compression": {"kind": "chunk-topk", "chunk": 4, "kept": 1}})

    period: int = field(metadata=at_least(1))
    outer_lr: float = field(default=1.0, metadata=between(0, 100, open_below=True))
    decay: float = field(default=0.95, metadata=between(0, 1))
    compression: Compression = "chunk-topk"
