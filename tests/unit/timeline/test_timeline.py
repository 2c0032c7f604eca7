"""[[timeline]]: the network at each time, and the events and jobs made from it."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_spec import edited, swept

from wanbench.harness.rep.measure import straggler_events
from wanbench.harness.testbeds.base import Event, TimelineRecord
from wanbench.harness.timeline.changes import described, has_endless_outage, planned_outage_s

MS, S = 1_000_000, 1_000_000_000
MBIT = 125_000.0
AT_5 = 'at = "5s"\nfor = "5s"\n'


def _spec(*entries: str) -> str:
    return edited(("[2]", "[3]")) + "".join(f"\n[[timeline]]\n{entry}\n" for entry in entries)


def cell_of(*entries: str):
    (cell,) = swept(_spec(*entries))
    return cell


def resolved_of(*entries: str, **steps: int):
    return cell_of(*entries).repetition(0).schedule.resolved({int(step[1:]): at for step, at in steps.items()})


# ---------------------------------------------------------------- states


def test_a_change_holds_from_its_time_until_before_its_end():
    resolved = resolved_of(AT_5 + 'rtt = "200ms"')
    assert resolved.times == (5 * S, 10 * S)
    delays = [
        {link.delay_ns for link in resolved.moment(at).network.links.values()} for at in (0, 5 * S - 1, 5 * S, 10 * S)
    ]
    assert delays == [{5 * MS}, {5 * MS}, {100 * MS}, {5 * MS}]


def test_without_an_end_a_change_holds_forever():
    resolved = resolved_of('at = "5s"\nloss = "1%"')
    assert resolved.times == (5 * S,)
    assert {link.loss for link in resolved.moment(10**15).network.links.values()} == {0.01}


def test_losses_come_in_bursts_while_a_change_holds():
    resolved = resolved_of('at = "5s"\nloss = "1%"', AT_5 + "loss_burst = 4")
    links = [resolved.moment(at).network.links[0, 1] for at in (0, 5 * S, 10 * S)]
    assert [(link.loss, link.loss_burst) for link in links] == [(0, 0), (0.01, 4), (0.01, 0)]


def test_a_repeated_change_happens_the_given_number_of_times():
    resolved = resolved_of('at = "1s"\nfor = "500ms"\nevery = "2s"\ntimes = 3\ncut = true')
    assert resolved.times == tuple(S * half // 2 for half in (2, 3, 6, 7, 10, 11))
    assert [resolved.moment(at).what for at in resolved.times] == [
        ("everywhere: cut off",),
        ("everywhere: healed",),
    ] * 3


def test_a_cut_of_one_site_affects_both_directions_and_no_other_site():
    links = resolved_of(AT_5 + "where = 1\ncut = true").moment(6 * S).network.links
    assert {pair for pair, link in links.items() if link.loss == 1} == {(0, 1), (1, 0), (2, 1), (1, 2)}


@pytest.mark.parametrize(
    ("where", "lost"),
    [
        ('"w0 -> w2"', {(0, 2)}),
        ('"0->2"', {(0, 2)}),
        ('"w2  <-> w0"', {(0, 2), (2, 0)}),
        ('"w1"', {(0, 1), (1, 0), (2, 1), (1, 2)}),
    ],
)
def test_where_names_paths_and_sites(where, lost):
    links = resolved_of(AT_5 + f"where = {where}\nloss = '2%'").moment(6 * S).network.links
    assert {pair for pair, link in links.items() if link.loss == 0.02} == lost


def test_changes_at_the_same_time_are_applied_in_the_order_of_the_spec():
    links = (
        resolved_of(AT_5 + "rtt = 3.0", 'at = "6s"\nfor = "1s"\nrtt = "40ms"', AT_5 + "rtt = 2.0")
        .moment(6 * S)
        .network.links
    )
    assert {link.delay_ns for link in links.values()} == {40 * MS}
    later = resolved_of(AT_5 + "rtt = 3.0", AT_5 + "rtt = 2.0").moment(6 * S).network.links
    assert {link.delay_ns for link in later.values()} == {30 * MS}


def test_on_a_uniform_profile_a_rate_changes_the_sites_links_and_keeps_the_buffers():
    before = cell_of(AT_5 + "rate = 0.5").emulated_network
    halved = resolved_of(AT_5 + "where = 1\nrate = 0.5").moment(5 * S).network
    assert [queue.rate_bytes_per_s for queue in halved.up] == [1000 * MBIT, 500 * MBIT, 1000 * MBIT]
    assert [queue.buffer_bytes for queue in halved.down] == [queue.buffer_bytes for queue in before.down]
    everywhere = resolved_of(AT_5 + 'rate = "10Mbit"').moment(5 * S).network
    assert {queue.rate_bytes_per_s for queue in (*everywhere.up, *everywhere.down)} == {10 * MBIT}
    assert {link.queue.rate_bytes_per_s for link in everywhere.links.values()} == {None}


def test_on_a_named_profile_a_rate_changes_the_paths_and_payload_scale_applies():
    text = edited(('rate = "1Gbit"', 'profile = "world4"'), ('rtt = ["10ms"]\n', ""), ("[2]", "[4]"),
                  ('step_time = "10ms"', 'step_time = "10ms"\npayload_scale = 0.1'))  # fmt: skip
    (cell,) = swept(text + '\n[[timeline]]\nat = "1s"\nwhere = "tokyo -> us-west-2"\nrate = "20Mbit"\n')
    network = cell.repetition(0).schedule.resolved({}).moment(S).network
    changed = {
        (network.sites[a], network.sites[b]): link.queue.rate_bytes_per_s
        for (a, b), link in network.links.items()
        if link != cell.emulated_network.links[a, b]
    }
    assert changed == {("tokyo", "oregon"): pytest.approx(2 * MBIT)}


def test_background_traffic_reduces_the_rate():
    network = resolved_of(AT_5 + 'where = 2\ntraffic = "400Mbit"').moment(5 * S).network
    assert [queue.rate_bytes_per_s for queue in network.up] == [1000 * MBIT, 1000 * MBIT, 600 * MBIT]


def test_a_change_after_a_step_has_no_time_before_that_step_has_ended():
    entry = 'at = "8 steps"\nfor = "1s"\ncut = true'
    assert cell_of(entry).repetition(0).schedule.awaited_steps == (8,)
    assert resolved_of(entry).times == ()
    assert resolved_of(entry, s8=3 * S).times == (3 * S, 4 * S)


def test_a_trace_changes_the_network_at_each_of_its_lines(tmp_path, monkeypatch):
    (tmp_path / "day.csv").write_text(
        "time_s,rtt_ms,rate_mbps,loss_pct,loss_burst\n0,20,100,,\n2,30,,1,5\n4,20,50,0,\n"
    )
    monkeypatch.chdir(tmp_path)
    resolved = resolved_of('at = "10s"\nwhere = "w0 -> w1"\ntrace = "day.csv"')
    assert resolved.times == (10 * S, 12 * S, 14 * S)
    links = [resolved.moment(at).network.links[0, 1] for at in resolved.times]
    assert [link.delay_ns for link in links] == [10 * MS, 15 * MS, 10 * MS]
    assert [link.queue.rate_bytes_per_s for link in links] == [100 * MBIT, 100 * MBIT, 50 * MBIT]
    assert [(link.loss, link.loss_burst) for link in links] == [(0, 0), (0.01, 5), (0, 5)]


def test_traces_of_equal_length_have_different_descriptions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.csv").write_text("time_s,rtt_ms\n0,20\n")
    (tmp_path / "two.csv").write_text("time_s,rtt_ms\n0,20\n1,30\n")
    (tmp_path / "other.csv").write_text("time_s,rtt_ms\n0,20\n1,31\n")
    texts = [described(cell_of(f'at = "1s"\ntrace = "{name}.csv"').changes) for name in ("one", "two", "other")]
    digests = [
        hashlib.sha256(text).hexdigest()[:6]
        for text in (
            b'[{"rtt_ms":20.0,"time_s":0.0}]',
            b'[{"rtt_ms":20.0,"time_s":0.0},{"rtt_ms":30.0,"time_s":1.0}]',
            b'[{"rtt_ms":20.0,"time_s":0.0},{"rtt_ms":31.0,"time_s":1.0}]',
        )
    ]
    assert texts == [
        f"everywhere: trace of {lines} ({digest}) at 1 s"
        for lines, digest in zip(("1 line", "2 lines", "2 lines"), digests, strict=True)
    ]
    inline = cell_of('at = "1s"\ntrace = [{ time_s = 0, rtt_ms = 20 }]').changes
    assert described(inline) == texts[0]


def _all(resolved) -> list[tuple[float, str]]:
    return [(at / S, what) for at in resolved.times for what in resolved.what(at)]


def test_each_repetition_of_a_trace_has_one_event_at_its_start_and_one_at_its_end(tmp_path, monkeypatch):
    (tmp_path / "day.csv").write_text("time_s,rtt_ms\n0,20\n2,30\n4,20\n")
    monkeypatch.chdir(tmp_path)
    resolved = resolved_of('at = "10s"\nfor = "6s"\nevery = "20s"\ntimes = 2\nwhere = 1\ntrace = "day.csv"')
    assert resolved.times == tuple(S * at for at in (10, 12, 14, 16, 30, 32, 34, 36))
    events = _all(resolved)
    assert [(at, what.partition(" of ")[0]) for at, what in events] == [
        (10, "worker 1: trace"), (16, "worker 1: trace over"), (30, "worker 1: trace"), (36, "worker 1: trace over"),
    ]  # fmt: skip


def test_a_change_is_not_over_while_another_of_the_same_kind_and_place_holds():
    cuts = [f'at = "{at}s"\nfor = "{length}s"\nwhere = {where}\ncut = true' for at, length, where in
            ((1, 9, 1), (3, 2, '"w1"'), (4, 1, 2))]  # fmt: skip
    assert _all(resolved_of(*cuts, 'at = "2s"\nfor = "3s"\nwhere = 1\nrtt = 2.0')) == [
        (1, "worker 1: cut off"), (2, "worker 1: rtt × 2"), (3, "w1: cut off"), (4, "worker 2: cut off"),
        (5, "worker 2: healed"), (5, "worker 1: rtt as before"), (10, "worker 1: healed"),
    ]  # fmt: skip


def test_a_change_that_directly_replaces_another_is_listed_instead_of_its_end():
    resolved = resolved_of('at = "1s"\nfor = "2s"\nrtt = 2.0', 'at = "3s"\nfor = "2s"\nrtt = 3.0')
    assert _all(resolved) == [(1, "everywhere: rtt × 2"), (3, "everywhere: rtt × 3"), (5, "everywhere: rtt as before")]


def test_the_outages_of_a_long_trace_visit_each_line_once(tmp_path, monkeypatch):
    """The test counts calls, because times on a shared host vary: one call for each line's span."""
    lines = "".join(f"{line},{line % 7},{100 * (line % 2)}\n" for line in range(1000))
    (tmp_path / "long.csv").write_text(f"time_s,rtt_ms,loss_pct\n{lines}")
    monkeypatch.chdir(tmp_path)
    schedule = cell_of('at = "1s"\ntrace = "long.csv"').repetition(0).schedule
    assert schedule.resolved({}) is schedule.resolved({})
    calls = []
    monkeypatch.setattr(
        "wanbench.harness.timeline.schedule._TimedSpan.holds", lambda span, at: calls.append(at) or True
    )
    schedule.resolved({}).outages()
    assert len(calls) == 1000
    assert sum(len(schedule.resolved({}).what(at)) for at in schedule.resolved({}).times) == 1


def test_a_cells_key_depends_on_the_trace_and_not_on_its_folder(tmp_path, monkeypatch):
    keys = []
    for folder, rtt in (("a", 20), ("b", 20), ("c", 30)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "day.csv").write_text(f"time_s,rtt_ms\n0,{rtt}\n")
        monkeypatch.chdir(tmp_path / folder)
        keys.append(cell_of('at = "1s"\ntrace = "day.csv"').key)
    assert keys[0] == keys[1] != keys[2]


def test_outages_are_the_times_without_any_delivery():
    outages = resolved_of(
        'at = "1s"\nfor = "4s"\nwhere = 1\ncut = true', 'at = "3s"\nfor = "4s"\nwhere = "w0 -> w1"\nloss = "100%"',
        'at = "9s"\nwhere = "w0 -> w1"\ncut = true',
    ).outages()  # fmt: skip
    assert outages[0, 1] == [(1 * S, 7 * S), (9 * S, None)]
    assert outages[1, 0] == outages[2, 1] == [(1 * S, 5 * S)]
    assert (0, 2) not in outages


@given(
    spans=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40), st.integers(0, 2)), min_size=1, max_size=6),
    probe=st.integers(0, 90),
)
def test_outages_agree_with_the_networks_of_their_times(spans, probe):
    resolved = resolved_of(
        *(f'at = "{at}s"\nfor = "{length}s"\nwhere = {where}\ncut = true' for at, length, where in spans)
    )
    links = resolved.moment(probe * S).network.links
    for pair, link in links.items():
        dark = any(
            begin <= probe * S and (end is None or probe * S < end) for begin, end in resolved.outages().get(pair, ())
        )
        assert dark == (link.loss == 1)


def _trace(*lines: tuple[int, int]) -> str:
    return "trace = [" + ", ".join(f"{{ time_s = {at}, loss_pct = {loss} }}" for at, loss in lines) + "]"


LIKE_A_CUT = ("cut = true", 'loss = "100%"', _trace((0, 100)), _trace((0, 100), (1, 100), (60, 100)))


@pytest.mark.parametrize("what", LIKE_A_CUT)
def test_patience_includes_the_time_of_every_outage_in_any_notation(what):
    plain, cut, twice = (
        cell_of(f'at = "2s"\n{more}\nwhere = 1\n{what if what_else is None else what_else}')
        for more, what_else in (
            ('for = "120s"', 'loss = "99%"'),
            ('for = "120s"', None),
            ('for = "120s"\nevery = "200s"\ntimes = 2', None),
        )
    )
    assert [cell.repetition(0).patience_s - plain.repetition(0).patience_s for cell in (cut, twice)] == pytest.approx(
        [240, 480]
    )
    assert cut.expected_seconds - plain.expected_seconds == pytest.approx(120)
    endless = cell_of(f'at = "2s"\nwhere = 1\n{what}')
    finite_s = 2 * 60 if "time_s = 60" in what else 0
    assert 0 < endless.repetition(0).patience_s - plain.repetition(0).patience_s - finite_s <= 120


def test_the_lines_of_a_trace_with_full_loss_count_as_outage():
    cell = cell_of(f'at = "2s"\nfor = "50s"\n{_trace((0, 0), (10, 100), (15, 100), (20, 99), (30, 100), (34, 0))}')
    assert planned_outage_s(cell.changes) == 10 + 4
    assert not has_endless_outage(cell.changes)


@pytest.mark.parametrize("what", LIKE_A_CUT)
def test_a_cut_off_place_is_named_for_a_cut_in_any_notation(what):
    resolved = resolved_of(f'at = "6s"\nfor = "120s"\nwhere = 1\n{what}')
    where = "cut off by the timeline: worker 1 since 6 s"
    assert [resolved.cut_off(S * at) for at in (5, 6, 7, 125, 126)] == ["", where, where, where, ""]
    assert resolved_of('at = "6s"\nwhere = 1\nloss = "99%"').cut_off(7 * S) == ""


# ---------------------------------------------------------------- cells


def test_a_timeline_is_part_of_a_cell_but_not_of_its_one_worker_cell():
    plain, changed = swept(edited(("[2]", "[3]"))), swept(_spec(AT_5 + "cut = true"))
    assert plain[0].key != changed[0].key
    assert "timeline" not in plain[0].identity()
    assert changed[0].changes
    assert changed[0].predicted_step_time_s is None  # the law needs a constant network


def test_only_the_job_of_a_straggler_has_slowdowns():
    todo = cell_of('at = "2s"\nfor = "1s"\nevery = "3s"\ntimes = 2\nwhere = 1\nslow = 3.0').repetition(0).jobs
    assert [job.slow for job in todo] == [
        [],
        [{"factor": 3.0, "at_step": None, "begin_ns": b, "end_ns": b + S} for b in (2 * S, 5 * S)],
        [],
    ]


def test_a_slowdown_of_several_workers_has_the_time_of_the_last_one_and_none_if_one_never_slowed_down():
    """Worker 0 ends before the second slowdown. Each worker has its own clock and its own transitions."""
    cell = cell_of('at = "1s"\nfor = "1s"\nevery = "3s"\ntimes = 2\nslow = 3.0', AT_5 + "rtt = 2.0")
    slowed_ns = [[[12 * S, 13 * S], [None, None]], *([[11 * S, 14 * S], [15 * S, None]] for _ in (1, 2))]
    names = ["everywhere: compute × 3", "everywhere: compute as before"] * 2
    events = [Event(what, due, due, 0) for what, due in zip(names, (1.0, 2.0, 4.0, 5.0), strict=True)]
    other = Event("everywhere: rtt × 2", 5.0, 5.001, 0)
    corrected = straggler_events(cell.repetition(0), slowed_ns, TimelineRecord([*events, other], {}, 10 * S))
    assert [(event.actual_s, event.at_ns) for event in corrected[:4]] == [
        (2.0, 12 * S), (4.0, 14 * S), (None, None), (None, None)
    ]  # fmt: skip
    assert [event.with_step for event in corrected] == [True] * 4 + [False]
    assert corrected[4] == other


def test_only_rank_0_reports_awaited_steps():
    todo = cell_of('at = "7 steps"\ncut = true', 'at = "1 step"\nrtt = 2.0').repetition(0).jobs
    assert [tuple(job.told_steps) for job in todo] == [(1, 7, todo[0].steps), (todo[0].steps,), (todo[0].steps,)]


def test_the_description_of_a_timeline():
    changes = cell_of(
        AT_5 + "where = 2\ncut = true",
        'at = "9 steps"\nrtt = 2.0',
        'at = "1s"\nfor = "1s"\nevery = "2s"\ntimes = 3\nrate = "5Mbit"',
    ).changes
    assert described(changes) == (
        "worker 2: cut off at 5 s for 5 s; everywhere: rtt × 2 after 9 steps; "
        "everywhere: rate 5Mbit at 1 s for 1 s, 3 times every 2 s"
    )
    assert described(()) is None
