"""TernGrad: -1, 0 or 1 times the largest element."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from wanbench.workloads.compression.qsgd import Levels


@dataclass
class TernGrad(Levels):
    """C(v_i) = s sign(v_i) b_i with s = max |v| and b_i = 1 with probability |v_i| / s, else 0: unbiased.

    Sent: 2 bits an element and a float32. One s for the whole flat vector; the paper has one a layer, and clips.
    """

    kind = "terngrad"
    source = "Wen, Xu, Yan, Wu, Wang, Chen and Li, TernGrad, NeurIPS 2017"

    def most(self) -> int:
        return 1

    def bucket_of(self, numel: int) -> int:
        return numel

    def norms(self, buckets: torch.Tensor) -> torch.Tensor:
        return buckets.abs().amax(dim=1)
