"""A map as it is stored: what is drawn, its subject and its caption."""

from __future__ import annotations

from wanbench.harness.advise.map import Map
from wanbench.harness.show.figures import stored_map
from wanbench.harness.show.figures.map import MapData
from wanbench.harness.show.grid import size


def stored(found: Map) -> stored_map.StoredMap:
    """The map as it is stored."""
    return stored_map.StoredMap(_data_of(found), subject_of(found), caption_of(found))


def _data_of(found: Map) -> MapData:
    width = len(found.rtts_ms)
    rows = [found.points[start : start + width] for start in range(0, len(found.points), width)]
    table = found.question.spec.network
    here = (table.rtt.ms, table.rate.mbit) if table.rtt is not None and table.rate is not None else None
    drawn = {point.name for point in found.points}
    return MapData(
        found.rtts_ms,
        found.mbits,
        [[point.name for point in row] for row in rows],
        [[point.gain for point in row] for row in rows],
        [[point.unknown for point in row] for row in rows],
        {name: kind for name, kind in found.kinds.items() if name in drawn},
        here if found.marked else None,
    )


def subject_of(found: Map) -> str:
    """Workload and workers, and where the accuracy comes from."""
    subject = f"{found.question.reference.workload.name}, {found.question.workers} workers; simulated"
    return subject + (", with the accuracy of a proxy" if found.library.proxy else "")


def caption_of(found: Map) -> str:
    """The conditions, and where the evidence comes from."""
    workload, limits = found.question.reference.workload, found.question.limits
    times_ms = sorted({1e3 * time_s for time_s in found.question.reference.each_step_time_s})
    compute = " to ".join(f"{time_ms:g}" for time_ms in dict.fromkeys((times_ms[0], times_ms[-1])))
    proxies = " and ".join(
        f"{each.about['workload'].get('name')} ({each.about['workers']} workers, {each.about['seeds']} seeds)"
        for each in found.library.recordings
    )
    what = "a proxy, not this model" if found.library.proxy else "this model"
    points = f"{100 * limits.accuracy_drop:g} percentage point{'s' * (limits.accuracy_drop != 0.01)}"
    return (
        f"{size(workload.message_bytes)} a gradient, {compute} ms of compute a step, "
        f"{found.question.spec.network.tcp.congestion}; best: the shortest time to within {points} of ssgd's accuracy, "
        f"recorded with {proxies or 'nothing'}, {what}; by the step-time law, corrected by {found.simulated} simulated "
        "networks and settings; a uniform network without loss; compression takes no time unless it is known."
    )
