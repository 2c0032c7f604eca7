"""The one-way delay of a packet. People measure round trips, so files can give the RTT instead."""

from __future__ import annotations

from wanbench.netprofiles.impairments.base import Impairment
from wanbench.netprofiles.units import Delay

RTT = Impairment("rtt", Delay, "RTT")
ONE_WAY = Impairment("one_way", Delay, "one-way delay", always_stored=True)
