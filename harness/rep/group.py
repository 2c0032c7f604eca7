"""What a program's process group `wan` is told about the emulated network: variables of its environment."""

from __future__ import annotations

import json

from wanbench.harness.plan.cell import CommandCell, TrainingCell
from wanbench.harness.plan.conditions import effective_conditions
from wanbench.harness.plan.law import one_shot_limit
from wanbench.harness.plan.pacing import paces
from wanbench.harness.rep.train import network_of
from wanbench.workloads.group.settings import COLLECTIVE, ONE_SHOT, PACES, REPLACES_GLOO, SITES


def group_environments(cell: CommandCell) -> tuple[dict[str, str], ...]:
    """Return the variables of each worker."""
    gloo = cell.collective in (None, "gloo")
    replaced = {} if gloo else {COLLECTIVE: str(cell.collective), REPLACES_GLOO: "1"}
    return tuple({**each, **replaced} for each in network_environments(cell, cell.processes))


def network_environments(cell: CommandCell | TrainingCell, each: int = 1) -> tuple[dict[str, str], ...]:
    """Return what each worker is told about the network.

    Args:
        each: processes of a worker. They share its links, so each gets a part of their rate.
    """
    network, by_site = network_of(cell), cell.collective == "hierarchical"
    # In `hierarchical`, one process of each site sends to other sites.
    sending = 1 if by_site else each
    ranks = len(set(cell.placement)) if by_site else cell.workers * each
    rtt_s, rate = effective_conditions(cell.profile, cell.placement, cell.workers)
    common = {
        SITES: json.dumps([site for site in cell.placement for _ in range(each)]),
        ONE_SHOT: str(one_shot_limit(ranks, rtt_s, rate and rate / sending) if ranks > 1 else 0),
    }
    environments = []
    for worker in range(cell.workers):
        rates = [
            [rate and round(rate / share) for rate, share in zip(pair, (sending * sending, each), strict=True)]
            for pair in paces(network, worker, leaders=by_site)
            for _ in range(each)
        ]
        environments.append({**common, PACES: json.dumps(rates)})
    return tuple(environments)
