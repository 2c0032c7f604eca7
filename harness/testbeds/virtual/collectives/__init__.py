"""How an all-reduce travels: one description each, from which its time emerges.

direct.py        everyone pushes its pieces to all others at once
gloo.py          the segment protocol of gloo's ring
ring.py          the textbook ring
halving.py       recursive halving and doubling
hierarchical.py  inside each site, then across sites
all_gather.py    everyone's vector to everyone: pushed at once, or round a ring
"""

from __future__ import annotations

from collections.abc import Mapping

from wanbench.harness.testbeds.virtual.collectives.all_gather import GlooGather, PushGather, RingGather
from wanbench.harness.testbeds.virtual.collectives.base import Plan
from wanbench.harness.testbeds.virtual.collectives.direct import Direct
from wanbench.harness.testbeds.virtual.collectives.gloo import Gloo
from wanbench.harness.testbeds.virtual.collectives.halving import HalvingDoubling
from wanbench.harness.testbeds.virtual.collectives.hierarchical import Hierarchical
from wanbench.harness.testbeds.virtual.collectives.ring import Ring

COLLECTIVES: Mapping[str, type[Plan]] = {
    "direct": Direct,
    "gloo": Gloo,
    "ring": Ring,
    "halving-doubling": HalvingDoubling,
    "hierarchical": Hierarchical,
}

ALL_GATHERS: Mapping[str, type[Plan]] = {"direct": PushGather, "gloo": GlooGather, "ring": RingGather}
