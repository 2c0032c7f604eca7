"""Networks that change on the simulated clock: outages as TCP sees them, order, stragglers, and who goes on."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pandas as pd
import pytest
from small_spec import edited, swept
from virtual_world import MS, NO_RAMP, star

from wanbench.harness.errors import RepFailed
from wanbench.harness.rep.train import jobs, measure, network_of, schedule_of
from wanbench.harness.testbeds.virtual.changing import ChangingNetwork
from wanbench.harness.testbeds.virtual.network import Route, VirtualNetwork
from wanbench.harness.testbeds.virtual.simulate import simulate
from wanbench.harness.testbeds.virtual.tcp import NEVER, Lost, Tcp, attempts
from wanbench.harness.testbeds.virtual.testbed import VirtualTestbed
from wanbench.workloads.algorithms import registry

S = 1_000_000_000


def lost(rtt_ms: float, packets: int = 10, at_ns: int = 0) -> Lost:
    return Lost(at_ns, round(rtt_ms * MS), round(rtt_ms * MS), packets, 1448.0 * packets)


def seconds(tries) -> list[float]:
    return [time / S for time, _ in tries]


# ---------------------------------------------------------------- TCP in an outage


def test_tcp_probes_after_two_round_trips_and_then_waits_twice_as_long_each_time():
    tries = list(itertools.islice(attempts(lost(50)), 6))
    assert tries[0] == (100 * MS, True)
    assert seconds(tries[1:]) == [0.35, 0.85, 1.85, 3.85, 7.85]


def test_the_probe_of_a_single_packet_waits_for_a_delayed_acknowledgement():
    assert seconds(itertools.islice(attempts(lost(50, packets=1)), 4)) == [0.25, 0.5, 1.0, 2.0]


def test_a_timeout_is_never_longer_than_two_minutes():
    times = seconds(itertools.islice(attempts(lost(50)), 16))
    assert max(b - a for a, b in itertools.pairwise(times)) == pytest.approx(120)


def virtual(outages=None, *, rtt_ms=50.0, tcp=NO_RAMP, **more) -> VirtualNetwork:
    network = VirtualNetwork(star([1, 1, 1], rtt_ms, **more), tcp=tcp)
    if outages is not None:
        network.outages.expect({src * 3 + dst: spans for (src, dst), spans in outages.items()})
    return network


def arrivals(network: VirtualNetwork, ready_s: float, nbytes: int = 14480) -> list[float]:
    """Seconds at which messages from worker 0 to both others have arrived, when they leave at `ready_s`."""
    sockets = network.connections("test", 0, 2)
    route = Route(network, np.array([0, 0]), np.array([1, 2]), np.array([nbytes, nbytes]))
    return (route.send(np.full(2, round(ready_s * S), np.int64), sockets) / S).tolist()


def test_what_is_sent_in_an_outage_arrives_at_the_first_try_after_it_and_other_paths_do_not_know():
    network = virtual({(0, 1): [(1 * S, 3 * S)]})
    assert arrivals(network, 0.9) == pytest.approx([0.925, 0.925])
    # Sent at 1.5: tries at 1.6, 1.85, 2.35 and then 3.35.
    assert arrivals(network, 1.5) == pytest.approx([3.375, 1.525])


def test_what_is_sent_behind_it_arrives_behind_it():
    network = virtual({(0, 1): [(1 * S, 3 * S)]})
    arrivals(network, 1.5)
    assert arrivals(network, 2.9) == pytest.approx([3.375, 2.925])
    assert arrivals(network, 3.1) == pytest.approx([3.375, 3.125])
    assert arrivals(network, 4.0) == pytest.approx([4.025, 4.025])


def test_what_was_past_the_path_when_it_was_cut_arrives():
    network = virtual({(0, 1): [(1 * S, 3 * S)]})
    assert arrivals(network, 1.0 - 1e-9)[0] == pytest.approx(1.025)
    assert arrivals(virtual({(0, 1): [(1 * S, 3 * S)]}), 1.0)[0] == pytest.approx(1.0 + 3.85 + 0.025)


def test_after_a_timeout_the_window_begins_with_one_segment():
    fast, slow = (virtual({(0, 1): [(1 * S, 3 * S)]}, tcp=Tcp(ramp=ramp)) for ramp in (False, True))
    difference = arrivals(slow, 1.5, 7 * 1448)[0] - arrivals(fast, 1.5, 7 * 1448)[0]
    assert difference == pytest.approx(2 * 0.05)  # 1 + 2 + 4 segments: two round trips of waiting


def test_without_an_end_nothing_arrives():
    assert arrivals(virtual({(0, 1): [(1 * S, None)]}), 2.0)[0] * S >= NEVER


def test_datagrams_of_an_outage_are_lost_and_no_others():
    network = virtual({(0, 1): [(1 * S, 2 * S)]})
    times = np.array([S - 1, S, 2 * S - 1, 2 * S])
    assert network.outages.lost(1, times).tolist() == [False, True, True, False]
    assert not network.outages.lost(2, times).any()


def test_a_shorter_delay_overtakes_nothing():
    before = star([1, 1, 1], 200.0)
    network = VirtualNetwork(before, tcp=NO_RAMP)
    network.expect_changes()
    assert arrivals(network, 1.0) == pytest.approx([1.1, 1.1])
    network.update(dataclasses.replace(before, links=star([1, 1, 1], 20.0).links))
    assert arrivals(network, 1.02) == pytest.approx([1.1, 1.1])
    assert arrivals(network, 1.2) == pytest.approx([1.21, 1.21])


# ---------------------------------------------------------------- cells

PARTITION = '\n[[timeline]]\nat = "1s"\nfor = "8s"\nwhere = 3\ncut = true\n'
# By kind: parameters, where the ones they have without are none.
PARAMETERS = {
    "delayed": "delay = 2", "sparse": "period = 2", "dts": "delay = 2, period = 2", "dga": "delay = 2, period = 2",
    "localsgd": "period = 2", "cocod": "period = 2", "overlap-localsgd": "period = 2", "diloco": "period = 2",
    "streaming-diloco": "period = 2, fragments = 2", "olco3": "staleness = 1, period = 2",
    "ecdpsgd": "compression = 'qsgd'",
}  # fmt: skip


def cell_of(algorithms: str, timeline: str, **more: str):
    changes = [("[2]", "[4]"), ('step_time = "10ms"', 'step_time = "100ms"'), ("ssgd = {}", algorithms)]
    changes += [("[sweep]", '[run]\ntestbed = "virtual"\nwindow = "40 steps"\n[sweep]'), *more.items()]
    (cell,) = swept(edited(*changes) + timeline)
    return cell


def step_times(cell) -> dict[int, list[float]]:
    """Of each rank, seconds of each step."""
    changing = ChangingNetwork(schedule_of(cell))
    steps = simulate(jobs(cell, 0, ""), network_of(cell), Tcp(), changing=changing).steps
    columns = steps._columns
    found: dict[int, list[float]] = {}
    for rank, step_s in zip(columns["rank"], columns["step_time_s"], strict=True):
        found.setdefault(rank, []).append(step_s)
    return found


def with_what_it_needs(kind: str) -> str:
    return f"{kind} = {{ {PARAMETERS.get(kind, '')} }}"


@pytest.mark.parametrize("kind", [kind for kind in registry.kinds() if kind != "local"])
def test_whoever_waits_for_a_peer_that_is_gone_says_so_and_whoever_goes_on_does(kind):
    """8 s without worker 3: a step that waits lasts as long, less what delay and period let pass meanwhile."""
    cell = cell_of(with_what_it_needs(kind), PARTITION)
    algorithm = cell.algorithm()
    longest = max(max(times) for times in step_times(cell).values())
    if algorithm.promises.goes_on:
        assert longest < 2.5  # two exchanges with their deadlines of 1 s are the most
    else:
        assert longest > 8 - 0.2 * (algorithm.delay_steps + 2 * algorithm.period_steps + 2)


@pytest.mark.parametrize("kind", ["sgp = { wait = '200ms' }", "osgp = { delay = 2, wait = '200ms' }"])
def test_push_sum_that_waits_for_a_time_goes_on(kind):
    cell = cell_of(kind, PARTITION)
    assert cell.algorithm().promises.goes_on
    assert max(max(times) for times in step_times(cell).values()) < 0.1 + 0.2 + 0.1
    assert max(max(times) for times in step_times(cell_of("sgp = {}", PARTITION)).values()) > 7


def test_a_cut_that_never_heals_fails_with_its_name(tmp_path):
    cell = cell_of("ssgd = {}", '\n[[timeline]]\nat = "1s"\nwhere = 3\ncut = true\n')
    with pytest.raises(RepFailed) as caught:
        measure(cell, 0, VirtualTestbed(), tmp_path, tmp_path, None)
    assert str(caught.value).endswith(
        "waits for a peer that does not take part; cut off by the timeline: worker 3 since 1 s"
    )


@pytest.mark.parametrize("kind", ["sgp = { wait = '200ms' }", "rps = { deadline = '200ms' }", "adpsgd = {}"])
def test_who_goes_on_without_a_peer_comes_to_the_end_though_it_never_comes_back(kind, tmp_path):
    cell = cell_of(kind, '\n[[timeline]]\nat = "1s"\nwhere = 3\ncut = true\n')
    row = measure(cell, 0, VirtualTestbed(), tmp_path, tmp_path, None)
    assert row["status"] == "ok"
    assert row["step_time_s"] < 1


def test_a_straggler_is_slow_for_its_time_and_alone():
    timeline = '\n[[timeline]]\nat = "10 steps"\nfor = "1s"\nwhere = 2\nslow = 5.0\n'
    times = step_times(cell_of("adpsgd = {}", timeline, **{"tensors = 2": "tensors = 2\nstep_cv = 0.0"}))
    assert times[2][:14] == pytest.approx([0.1] * 10 + [0.5, 0.5] + [0.1] * 2)
    assert max(times[1]) == pytest.approx(0.1)


@pytest.mark.parametrize("at", ["1.05s", "10 steps"])
def test_a_worker_gets_slow_when_its_next_step_begins_and_the_row_says_so(at, tmp_path):
    """Worker 2 takes 0.1 s a step, and all others 0.2 s: it has made 10 of its own while rank 0 has made 5."""
    everyone = "".join(f'\n[[timeline]]\nat = "0s"\nwhere = {rank}\nslow = 2.0\n' for rank in (0, 1, 3))
    straggler = f'\n[[timeline]]\nat = "{at}"\nfor = "0.32s"\nwhere = 2\nslow = 3.0\n'
    cell = cell_of("adpsgd = {}", everyone + straggler, **{"tensors = 2": "tensors = 2\nstep_cv = 0.0"})
    row = measure(cell, 0, VirtualTestbed(), tmp_path, tmp_path, None)
    steps = pd.read_parquet(tmp_path / "steps.parquet")
    mine = steps[steps["rank"] == 2].sort_values("step")
    begins_ns = [0, *mine["end_ns"].tolist()]
    slow = [step for step, seconds in enumerate(mine["step_time_s"]) if seconds > 0.25]
    events = {event["what"]: event for event in row["events"]}
    began, ended = (events[f"worker 2: compute {how}"] for how in ("× 3", "as before"))
    assert (began["at_ns"], ended["at_ns"]) == (begins_ns[slow[0]], begins_ns[slow[-1] + 1])
    assert slow == ([11] if at == "1.05s" else [10, 11])
    assert (began["actual_s"] > began["asked_s"]) == (at == "1.05s")  # rank 0 makes its tenth step a second later
    assert json.loads((tmp_path / "events.json").read_text()) == row["events"]


def test_a_worker_that_is_through_gets_slow_no_more(tmp_path):
    straggler = '\n[[timeline]]\nat = "1000s"\nwhere = 2\nslow = 3.0\n[[timeline]]\nat = "1s"\nslow = 2.0\n'
    row = measure(cell_of("ssgd = {}", straggler), 0, VirtualTestbed(), tmp_path, tmp_path, None)
    assert [(event["what"], event["actual_s"] is None) for event in row["events"]] == [
        ("everywhere: compute × 2", False),
        ("worker 2: compute × 3", True),
    ]


def test_a_change_after_a_step_of_rank_0_comes_when_that_step_has_ended(tmp_path):
    cell = cell_of("ssgd = {}", '\n[[timeline]]\nat = "10 steps"\nfor = "1s"\nrtt = "100ms"\n')
    row = measure(cell, 0, VirtualTestbed(), tmp_path, tmp_path, None)
    began, ended = row["events"]
    assert (began["what"], ended["what"]) == ("everywhere: rtt 100ms", "everywhere: rtt as before")
    assert began["asked_s"] == began["actual_s"] == pytest.approx(10 * 0.11, rel=0.1)
    assert ended["actual_s"] - began["actual_s"] == pytest.approx(1)
    assert row["timeline"] == "everywhere: rtt 100ms after 10 steps for 1 s"


def test_what_comes_after_the_end_of_training_is_told_as_not_having_come(tmp_path):
    cell = cell_of("ssgd = {}", '\n[[timeline]]\nat = "1000s"\ncut = true\n')
    row = measure(cell, 0, VirtualTestbed(), tmp_path, tmp_path, None)
    assert [(event["asked_s"], event["actual_s"]) for event in row["events"]] == [(1000.0, None)]
    steady = measure(cell_of("ssgd = {}", ""), 0, VirtualTestbed(), tmp_path, tmp_path, None)
    assert row["step_time_s"] == steady["step_time_s"]


def test_changes_to_come_that_no_network_can_have_together_are_told_all_the_same(tmp_path):
    cell = cell_of(
        "ssgd = {}",
        '\n[[timeline]]\nat = "5 steps"\nfor = "2000s"\ntraffic = "600Mbit"\n'
        '\n[[timeline]]\nat = "1000s"\ntraffic = "600Mbit"\n',
    )
    row = measure(cell, 0, VirtualTestbed(), tmp_path, tmp_path, None)
    assert [(event["what"], event["actual_s"] is None) for event in row["events"]] == [
        ("everywhere: traffic 600Mbit", False),
        ("everywhere: traffic 600Mbit", True),
    ]


def test_the_same_timeline_gives_the_same_times():
    cell = cell_of("rps = {}", PARTITION, **{'rate = "1Gbit"': 'rate = "1Gbit"\nloss = "1%"'})
    assert step_times(cell) == step_times(cell)
