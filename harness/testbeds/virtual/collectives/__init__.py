"""Models of collectives: each describes the messages of an all-reduce, and perhaps of an all-gather, whose times
the simulation computes.

direct.py        every rank pushes its pieces to all others at once
gloo.py          the segment protocol of gloo's ring
ring.py          the textbook ring
hierarchical.py  inside each site, then across sites
"""

from __future__ import annotations

from collections.abc import Mapping

from wanbench.harness.testbeds.virtual.collectives.base import Plan
from wanbench.harness.testbeds.virtual.collectives.direct import Direct, PushGather
from wanbench.harness.testbeds.virtual.collectives.gloo import Gloo, GlooGather
from wanbench.harness.testbeds.virtual.collectives.hierarchical import Hierarchical
from wanbench.harness.testbeds.virtual.collectives.ring import Ring, RingGather

COLLECTIVES: Mapping[str, type[Plan]] = {
    "direct": Direct,
    "gloo": Gloo,
    "ring": Ring,
    "hierarchical": Hierarchical,
}

ALL_GATHERS: Mapping[str, type[Plan]] = {"direct": PushGather, "gloo": GlooGather, "ring": RingGather}
