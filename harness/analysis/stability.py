"""The largest stable learning rate x curvature of delayed updates with exact compensation. Pure."""

from __future__ import annotations

import numpy as np

_SCAN = np.geomspace(1e-4, 4.0, 400)
_BISECTIONS = 40


def synchronous_limit(momentum: float) -> float:
    """The limit of synchronous SGD with heavy-ball momentum on a quadratic: 2 (1 + momentum)."""
    return 2 * (1 + momentum)


def delayed_limit(delay: int, momentum: float) -> float:
    """The limit of `delayed`, in learning rate x curvature, dimensionless.

    On a quadratic of curvature h the replicas' difference y obeys, with a = lr h and delay D::

        y(n) = -a sum over k < D of c_k y(n-1-k),   c_k = (1 - momentum^(k+1)) / (1 - momentum)

    It shrinks while all roots of z^D + a (c_0 z^(D-1) + ... + c_(D-1)) are inside the unit circle. The replicas' mean
    moves as in synchronous SGD, whose limit is higher.

    Args:
        delay: D in steps, 1 or more. momentum: from 0 to below 1.
    """
    factors = np.array([(1 - momentum ** (k + 1)) / (1 - momentum) for k in range(delay)])
    first = next(place for place, a in enumerate(_SCAN) if _radius(a, factors) >= 1)
    low, high = _SCAN[first - 1], _SCAN[first]
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if _radius(middle, factors) < 1 else (low, middle)
    return float(low)


def _radius(a: float, factors: np.ndarray) -> float:
    """The largest modulus of a root."""
    return float(np.abs(np.roots(np.concatenate([[1.0], a * factors]))).max())
