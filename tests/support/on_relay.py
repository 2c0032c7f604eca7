"""Cells as on a host whose `auto` is netns and the relay."""

from __future__ import annotations

from wanbench.harness.plan import expand as plan
from wanbench.harness.plan.auto import FixedHost, Host
from wanbench.harness.plan.cell import Cell
from wanbench.harness.plan.plan import Plan, make
from wanbench.harness.spec.experiment import Spec

HOST = FixedHost()


def expand(spec: Spec, where: str, host: Host = HOST) -> list[Cell]:
    return plan.expand(spec, where, host)


def planned(spec: Spec, where: str, host: Host = HOST) -> Plan:
    return make(spec, where, host)
