"""Networks that change on the simulated clock: TCP in an outage, order, stragglers, and algorithms that continue."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pandas as pd
import pytest
from algorithm_examples import KINDS, written
from small_spec import edited, swept
from virtual_world import MS, NO_RAMP, delivered, star

from wanbench.harness.errors import RepFailed
from wanbench.harness.rep.measure import measure
from wanbench.harness.testbeds.virtual.network import Route, VirtualNetwork
from wanbench.harness.testbeds.virtual.simulate import ChangingNetwork, simulate
from wanbench.harness.testbeds.virtual.tcp import NEVER, Lost, Tcp, attempts
from wanbench.harness.testbeds.virtual.testbed import VirtualTestbed

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
    """The arrival times in s of messages from worker 0 to both others that leave at `ready_s`."""
    sockets = network.connections("test", 0, 2)
    route = Route(network, np.array([0, 0]), np.array([1, 2]), np.array([nbytes, nbytes]))
    return (delivered(route, np.full(2, round(ready_s * S), np.int64), sockets) / S).tolist()


def test_a_message_sent_in_an_outage_arrives_with_the_first_retry_after_it_and_other_paths_are_unaffected():
    network = virtual({(0, 1): [(1 * S, 3 * S)]})
    assert arrivals(network, 0.9) == pytest.approx([0.925, 0.925])
    # Sent at 1.5 s, with retries at 1.6, 1.85, 2.35 and 3.35 s.
    assert arrivals(network, 1.5) == pytest.approx([3.375, 1.525])


def test_later_messages_arrive_behind_a_message_held_by_an_outage():
    network = virtual({(0, 1): [(1 * S, 3 * S)]})
    arrivals(network, 1.5)
    assert arrivals(network, 2.9) == pytest.approx([3.375, 2.925])
    assert arrivals(network, 3.1) == pytest.approx([3.375, 3.125])
    assert arrivals(network, 4.0) == pytest.approx([4.025, 4.025])


def test_a_message_past_the_path_at_the_start_of_a_cut_arrives():
    network = virtual({(0, 1): [(1 * S, 3 * S)]})
    assert arrivals(network, 1.0 - 1e-9)[0] == pytest.approx(1.025)
    assert arrivals(virtual({(0, 1): [(1 * S, 3 * S)]}), 1.0)[0] == pytest.approx(1.0 + 3.85 + 0.025)


def test_after_a_timeout_the_window_begins_with_one_segment():
    fast, slow = (virtual({(0, 1): [(1 * S, 3 * S)]}, tcp=Tcp(ramp=ramp)) for ramp in (False, True))
    difference = arrivals(slow, 1.5, 7 * 1448)[0] - arrivals(fast, 1.5, 7 * 1448)[0]
    assert difference == pytest.approx(2 * 0.05)  # 1 + 2 + 4 segments: the sender waits for two round trips


def test_nothing_arrives_in_an_endless_outage():
    assert arrivals(virtual({(0, 1): [(1 * S, None)]}), 2.0)[0] * S >= NEVER


def test_exactly_the_datagrams_in_an_outage_are_lost():
    network = virtual({(0, 1): [(1 * S, 2 * S)]})
    times = np.array([S - 1, S, 2 * S - 1, 2 * S])
    assert network.outages.lost(1, times).tolist() == [False, True, True, False]
    assert not network.outages.lost(2, times).any()


def test_after_a_change_to_a_shorter_delay_no_message_overtakes():
    before = star([1, 1, 1], 200.0)
    network = VirtualNetwork(before, tcp=NO_RAMP)
    assert arrivals(network, 1.0) == pytest.approx([1.1, 1.1])
    network.update(dataclasses.replace(before, links=star([1, 1, 1], 20.0).links))
    assert arrivals(network, 1.02) == pytest.approx([1.1, 1.1])
    assert arrivals(network, 1.2) == pytest.approx([1.21, 1.21])


# ---------------------------------------------------------------- cells

PARTITION = '\n[[timeline]]\nat = "1s"\nfor = "8s"\nwhere = 3\ncut = true\n'


def cell_of(algorithms: str, timeline: str, **more: str):
    changes = [("[2]", "[4]"), ('step_time = "10ms"', 'step_time = "100ms"'), ("ssgd = {}", algorithms)]
    changes += [("[sweep]", '[run]\ntestbed = "virtual"\nwindow = "40 steps"\n[sweep]'), *more.items()]
    (cell,) = swept(edited(*changes) + timeline)
    return cell


def step_times(cell) -> dict[int, list[float]]:
    """The duration of each step in seconds, by rank."""
    changing = ChangingNetwork(cell.repetition(0).schedule)
    steps = simulate(cell.repetition(0).jobs, cell.emulated_network, Tcp(), changing=changing).steps
    columns = steps._columns
    found: dict[int, list[float]] = {}
    for rank, step_s in zip(columns["rank"], columns["step_time_s"], strict=True):
        found.setdefault(rank, []).append(step_s)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_an_algorithm_waits_for_a_lost_peer_or_continues_as_it_promises(kind):
    """8 s without worker 3: a step that waits lasts as long, minus the steps that delay and period allow."""
    cell = cell_of(written(kind), PARTITION)
    algorithm = cell.algorithm()
    longest = max(max(times) for times in step_times(cell).values())
    if algorithm.promises.goes_on:
        assert longest < 2.5  # at most two exchanges with their deadlines of 1 s
    else:
        assert longest > 8 - 0.2 * (algorithm.delay_steps + 2 * algorithm.period_steps + 2)


@pytest.mark.parametrize("kind", ["sgp = { wait = '200ms' }", "osgp = { delay = 2, wait = '200ms' }"])
def test_push_sum_with_a_limited_wait_continues(kind):
    cell = cell_of(kind, PARTITION)
    assert cell.algorithm().promises.goes_on
    assert max(max(times) for times in step_times(cell).values()) < 0.1 + 0.2 + 0.1
    assert max(max(times) for times in step_times(cell_of("sgp = {}", PARTITION)).values()) > 7


def test_a_repetition_that_fails_by_an_endless_cut_names_it(tmp_path):
    cell = cell_of("ssgd = {}", '\n[[timeline]]\nat = "1s"\nwhere = 3\ncut = true\n')
    with pytest.raises(RepFailed) as caught:
        measure(cell.repetition(0), VirtualTestbed().open_slot(""), tmp_path, tmp_path, None)
    assert str(caught.value).endswith(
        "waits for a peer that does not take part; cut off by the timeline: worker 3 since 1 s"
    )


@pytest.mark.parametrize("kind", ["sgp = { wait = '200ms' }", "rps = { deadline = '200ms' }", "adpsgd = {}"])
def test_an_algorithm_that_continues_without_a_peer_completes_in_an_endless_cut(kind, tmp_path):
    cell = cell_of(kind, '\n[[timeline]]\nat = "1s"\nwhere = 3\ncut = true\n')
    row = measure(cell.repetition(0), VirtualTestbed().open_slot(""), tmp_path, tmp_path, None)
    assert row["status"] == "ok"
    assert row["step_time_s"] < 1


def test_only_the_straggler_is_slow_and_only_for_its_time():
    timeline = '\n[[timeline]]\nat = "10 steps"\nfor = "1s"\nwhere = 2\nslow = 5.0\n'
    times = step_times(cell_of("adpsgd = {}", timeline, **{"tensors = 2": "tensors = 2\nstep_cv = 0.0"}))
    assert times[2][:14] == pytest.approx([0.1] * 10 + [0.5, 0.5] + [0.1] * 2)
    assert max(times[1]) == pytest.approx(0.1)


@pytest.mark.parametrize("at", ["1.05s", "10 steps"])
def test_a_worker_becomes_slow_at_its_next_step_and_the_row_has_that_time(at, tmp_path):
    """Worker 2 takes 0.1 s per step, and all others 0.2 s: it has made 10 steps when rank 0 has made 5."""
    everyone = "".join(f'\n[[timeline]]\nat = "0s"\nwhere = {rank}\nslow = 2.0\n' for rank in (0, 1, 3))
    straggler = f'\n[[timeline]]\nat = "{at}"\nfor = "0.32s"\nwhere = 2\nslow = 3.0\n'
    cell = cell_of("adpsgd = {}", everyone + straggler, **{"tensors = 2": "tensors = 2\nstep_cv = 0.0"})
    row = measure(cell.repetition(0), VirtualTestbed().open_slot(""), tmp_path, tmp_path, None)
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


def test_a_slowdown_after_the_end_of_a_worker_has_no_actual_time(tmp_path):
    straggler = '\n[[timeline]]\nat = "1000s"\nwhere = 2\nslow = 3.0\n[[timeline]]\nat = "1s"\nslow = 2.0\n'
    row = measure(
        cell_of("ssgd = {}", straggler).repetition(0), VirtualTestbed().open_slot(""), tmp_path, tmp_path, None
    )
    assert [(event["what"], event["actual_s"] is None) for event in row["events"]] == [
        ("everywhere: compute × 2", False),
        ("worker 2: compute × 3", True),
    ]


def test_a_change_after_a_step_happens_when_rank_0_has_ended_that_step(tmp_path):
    cell = cell_of("ssgd = {}", '\n[[timeline]]\nat = "10 steps"\nfor = "1s"\nrtt = "100ms"\n')
    row = measure(cell.repetition(0), VirtualTestbed().open_slot(""), tmp_path, tmp_path, None)
    began, ended = row["events"]
    assert (began["what"], ended["what"]) == ("everywhere: rtt 100ms", "everywhere: rtt as before")
    assert began["asked_s"] == began["actual_s"] == pytest.approx(10 * 0.11, rel=0.1)
    assert ended["actual_s"] - began["actual_s"] == pytest.approx(1)
    assert row["timeline"] == "everywhere: rtt 100ms after 10 steps for 1 s"


def test_a_change_after_the_end_of_training_has_no_actual_time(tmp_path):
    cell = cell_of("ssgd = {}", '\n[[timeline]]\nat = "1000s"\ncut = true\n')
    row = measure(cell.repetition(0), VirtualTestbed().open_slot(""), tmp_path, tmp_path, None)
    assert [(event["asked_s"], event["actual_s"]) for event in row["events"]] == [(1000.0, None)]
    steady = measure(cell_of("ssgd = {}", "").repetition(0), VirtualTestbed().open_slot(""), tmp_path, tmp_path, None)
    assert row["step_time_s"] == steady["step_time_s"]


def test_pending_changes_are_listed_even_if_no_network_can_have_them_together(tmp_path):
    cell = cell_of(
        "ssgd = {}",
        '\n[[timeline]]\nat = "5 steps"\nfor = "2000s"\ntraffic = "600Mbit"\n'
        '\n[[timeline]]\nat = "1000s"\ntraffic = "600Mbit"\n',
    )
    row = measure(cell.repetition(0), VirtualTestbed().open_slot(""), tmp_path, tmp_path, None)
    assert [(event["what"], event["actual_s"] is None) for event in row["events"]] == [
        ("everywhere: traffic 600Mbit", False),
        ("everywhere: traffic 600Mbit", True),
    ]


def test_the_same_timeline_gives_the_same_times():
    cell = cell_of("rps = {}", PARTITION, **{'rate = "1Gbit"': 'rate = "1Gbit"\nloss = "1%"'})
    assert step_times(cell) == step_times(cell)
