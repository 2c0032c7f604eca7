"""TernGrad: -1, 0 or 1 times the largest element."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch

from wanbench.workloads.compression.qsgd import Levels


@dataclass
class TernGrad(Levels):
    """Sends -1, 0 or 1 per element, drawn at random; unbiased.

    C(v_i) = s sign(v_i) b_i for v of shape (numel,), with s = max |v|, and b_i = 1 with probability |v_i| / s, else 0.
    A message has 2 bits per element and a float32. Here the whole flat vector shares one s; the paper has one per
    layer, and clips.
    """

    kind = "terngrad"
    source = "Wen, Xu, Yan, Wu, Wang, Chen and Li, TernGrad, NeurIPS 2017"
    levels = 1
    bucket = sys.maxsize

    def norms(self, buckets: torch.Tensor) -> torch.Tensor:
        return buckets.abs().amax(dim=1)
