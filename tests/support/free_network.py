"""A network on which packets take no time."""

from __future__ import annotations

from dataclasses import replace

from wanbench.harness.emulators.plan import UNLIMITED, EmulatedNetwork, Link


def free(network: EmulatedNetwork) -> EmulatedNetwork:
    """The same sites and workers without delay, loss or limits."""
    unlimited = (UNLIMITED,) * len(network.sites)
    links = dict.fromkeys(network.links, Link(0, 0, 0.0, UNLIMITED))
    no_delay = (0,) * len(network.sites)
    return replace(network, up=unlimited, down=unlimited, local_delay_ns=no_delay, links=links)
