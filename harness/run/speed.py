"""How slow this host runs an emulator. A virtual machine on a busy host can take several times its usual time."""

from __future__ import annotations

import socket
import time
from functools import cache

from wanbench.harness.emulators.plan import build, worker_address
from wanbench.harness.emulators.relay.segment import NO_OFFLOAD
from wanbench.harness.emulators.relay.switch import Switch
from wanbench.netprofiles import Delay, Rate, uniform

# Processor time of a wake-up with one packet where the constants in `plan.load` hold: 70 us on a host that needed 78 us
# for a relayed packet, which takes 30 us by those constants.
_USUAL_S = 27e-6
_SAMPLES, _WAKE_UPS, _SLEEP_S = 3, 70, 0.0002


@cache
def slowness() -> float:
    """Processor time of the relay's model on this host, as a multiple of the usual one; at least 1. Takes 60 ms."""
    return max(1.0, min(_wake_up_s() for _ in range(_SAMPLES)) / _USUAL_S)


def _wake_up_s() -> float:
    profile = uniform(2, Delay.from_ms(10), Rate.from_mbit(1000))
    switch = Switch()
    ports = [switch.attach(rank, socket.inet_aton(worker_address(rank)), fd=-1) for rank in range(2)]
    switch.apply(build(profile, [site.name for site in profile.sites]), seed=0)
    packet = NO_OFFLOAD + b"\x45" + bytes(15) + ports[1].address + bytes(1480)
    began = time.process_time()
    for _ in range(_WAKE_UPS):
        time.sleep(_SLEEP_S)
        now = float(time.monotonic_ns())
        switch.accept(packet, ports[0], now)
        switch.release(now + 1e9, 1)
    return (time.process_time() - began) / _WAKE_UPS
