"""Models of collectives: each describes the messages of an all-reduce, whose times the simulation computes.

direct.py        every rank pushes its pieces to all others at once
gloo.py          the segment protocol of gloo's ring
ring.py          the textbook ring
hierarchical.py  inside each site, then across sites
all_gather.py    every rank's vector to all ranks: pushed at once, or around a ring
"""

from __future__ import annotations

from collections.abc import Mapping

from wanbench.harness.testbeds.virtual.collectives.all_gather import GlooGather, PushGather, RingGather
from wanbench.harness.testbeds.virtual.collectives.base import Plan
from wanbench.harness.testbeds.virtual.collectives.direct import Direct
from wanbench.harness.testbeds.virtual.collectives.gloo import Gloo
from wanbench.harness.testbeds.virtual.collectives.hierarchical import Hierarchical
from wanbench.harness.testbeds.virtual.collectives.ring import Ring

COLLECTIVES: Mapping[str, type[Plan]] = {
    "direct": Direct,
    "gloo": Gloo,
    "ring": Ring,
    "hierarchical": Hierarchical,
}

ALL_GATHERS: Mapping[str, type[Plan]] = {"direct": PushGather, "gloo": GlooGather, "ring": RingGather}
