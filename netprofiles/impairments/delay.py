"""How long a packet is on its way. People measure round trips, so files may give the RTT instead."""

from __future__ import annotations

from wanbench.netprofiles.impairments.base import Impairment
from wanbench.netprofiles.units import Delay

RTT = Impairment("rtt", Delay, "RTT")
ONE_WAY = Impairment("one_way", Delay, "one-way delay", always_stored=True)
