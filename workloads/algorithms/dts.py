"""Delayed and temporally sparse updates with exact compensation (DTS).

Source: Zhu, Lu, Lin and Han, "Distributed Training Across the World", 2019, Eq. 2-4 (vanilla SGD); with p = 1
also Delayed Gradient Averaging, NeurIPS 2021. The paper's Eq. 3 counts t = D + 1. Its momentum formula is not
published. The one below is derived from one fact: SGD is linear in the gradients.

**Derivation.** One optimiser step takes x = (w, m) to A_n x + b_n g_n. The 2x2 matrix A_n and the pair b_n
act alike on every coordinate and hold the step's learning rate, momentum, Nesterov and weight decay
(`SGD.respond`). So x is a sum of responses, one per gradient. To replace a worker's own gradients of the block of
steps s..e by their average, D steps late, add to x::

    sum over k in s..e of  A_{e+D} ... A_{k+1} b_k (gbar_k - g_k)    =    A_{e+D} ... A_{e+1} (xbar - x_own)

x_own = sum over k in s..e of A_e ... A_{k+1} b_k g_k is the optimiser run from x = 0 over the block's own
gradients, and xbar is its mean over the workers. A worker sends x_own:

=================  ===========================  ===========================================================
p = 1              g (x_own = b_k g)            one tensor; the pair b_k is propagated, not A's columns
p > 1, momentum 0  the w half of x_own          one tensor, since m stays 0
p > 1, momentum    both halves                  two tensors, by two all_reduces back to back
=================  ===========================  ===========================================================

Special cases: with constant lr, momentum beta and p = 1, w -= lr (1 - beta^(D+1)) / (1 - beta) delta and
m += beta^D delta; without momentum w -= lr delta, which is Eq. 3 of the paper and, summed over p steps,
Eq. 4; with D = 0 and p = 1 it is synchronous SGD.

The corrections of all workers sum to zero, so they never move the mean of the replicas. After `finish` the
replicas are equal to rounding: each adds the same terms in another order.

**One tensor** (`tensors = 1`) instead of two, with momentum and p > 1: send S = sum of the block's g_k, and treat every
g_k as their mean: x += (1/p) (sum of A_{e+D} ... A_{k+1} b_k) (Sbar - S). This halves the bytes. The replicas agree in
the end only as far as the difference between the workers' gradients is constant within a block.

**Model space** (`form = "model"`): a worker sends the change of w over the block, u = sum of (w after - w before a
step), and D steps later w += ubar - u. Momentum stays local. This form needs nothing from the optimiser, so AdamW works
too. With SGD without momentum and weight decay it equals the gradient form; with D = p it is CoCoD-SGD. As in local
SGD, the replicas agree in w after `finish`, but not in m.

**Compression** (`compression`): the message passes a compressor C with error feedback: c = C(x_own + e). The residual e
stays applied locally until it is sent, and the correction is cbar - c. The correction and the mean of the replicas
are exact; the replicas differ by the response to their residuals. The paper cites DGC and does not say whether it
applies the residual locally.

=====================  =========================================================
here                   in the paper
=====================  =========================================================
delay D                t, with D = t in its prose and D = t - 1 in its Eq. 3
period p               p (Eq. 4)
compression            "compression" C of its table of D, T and C
=====================  =========================================================
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wanbench.workloads.algorithms.base import Compression, at_least, between, one_of
from wanbench.workloads.algorithms.compensated import Compensated


@dataclass
class DTS(Compensated):
    """Delay and sparsity combined: hides latency and sends less often.

    Averages blocks of `period` steps and applies each average `delay` steps later, corrected exactly. Without momentum,
    for the block of steps s..e and gradients of shape (numel,)::

        w_j <- w_j - lr sum over k in s..e of (mean_j g_j(k) - g_j(k))          at the end of step e + D

    Attributes:
        delay: D, in steps; 0 or more.
        period: p, in steps; 1 or more.
        form: "gradient" is exact and needs SGD; "model" sends differences of parameters and works with any optimiser.
        tensors: for the gradient form with momentum and p > 1: 2 is exact, 1 sends half as much and estimates.
        compression: compressor of each message; "none" sends all of it.
    """

    kind = "dts"
    symbols = {"delay": "t (D = t - 1 in Eq. 3)", "period": "p", "compression": "C"}  # noqa: RUF012
    examples = (
        {"delay": 4, "period": 2},
        {"delay": 3, "period": 2, "tensors": 1},
        {"delay": 3, "period": 2, "form": "model"},
        {"delay": 3, "period": 2, "form": "model", "compression": "qsgd"},
    )

    delay: int = field(metadata=at_least(0))
    period: int = field(metadata=at_least(1))
    form: str = field(default="gradient", metadata=one_of("gradient", "model"))
    tensors: int = field(default=2, metadata=between(1, 2))
    compression: Compression = "none"

    @property
    def model_space(self) -> bool:
        return self.form == "model"

    @property
    def two_tensors(self) -> bool:
        return self.tensors == 2 or self.period == 1
