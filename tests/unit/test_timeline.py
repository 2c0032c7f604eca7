"""[[timeline]]: which network there is when, and which entries are refused."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_spec import edited, refusal, swept

from harness.errors import SpecError
from harness.rep import expected_seconds, jobs, network_of, patience_s, schedule_of
from harness.timeline.changes import described, has_endless_outage, planned_outage_s
from harness.timeline.edits import TimelineError
from harness.timeline.table import KINDS
from harness.timeline.trace import VALUES, read_trace
from netprofiles import UnitError

MS, S = 1_000_000, 1_000_000_000
MBIT = 125_000.0
AT_5 = 'at = "5s"\nfor = "5s"\n'


def _spec(*entries: str) -> str:
    return edited(("[2]", "[3]")) + "".join(f"\n[[timeline]]\n{entry}\n" for entry in entries)


def cell_of(*entries: str):
    (cell,) = swept(_spec(*entries))
    return cell


def score_of(*entries: str, **steps: int):
    return schedule_of(cell_of(*entries)).met({int(step[1:]): at for step, at in steps.items()})


def refused(*entries: str) -> str:
    return refusal(("[2]", "[3]"), ("[algorithms]", "".join(f"[[timeline]]\n{e}\n" for e in entries) + "[algorithms]"))


# ---------------------------------------------------------------- states


def test_a_change_holds_from_its_time_until_before_its_end():
    score = score_of(AT_5 + 'rtt = "200ms"')
    assert score.times == (5 * S, 10 * S)
    delays = [
        {link.delay_ns for link in score.moment(at).network.links.values()} for at in (0, 5 * S - 1, 5 * S, 10 * S)
    ]
    assert delays == [{5 * MS}, {5 * MS}, {100 * MS}, {5 * MS}]


def test_without_an_end_it_holds_for_good():
    score = score_of('at = "5s"\nloss = "1%"')
    assert score.times == (5 * S,)
    assert {link.loss for link in score.moment(10**15).network.links.values()} == {0.01}


def test_what_comes_again_comes_as_often_as_it_says():
    score = score_of('at = "1s"\nfor = "500ms"\nevery = "2s"\ntimes = 3\ncut = true')
    assert score.times == tuple(S * half // 2 for half in (2, 3, 6, 7, 10, 11))
    assert [score.moment(at).what for at in score.times] == [("everywhere: cut off",), ("everywhere: healed",)] * 3


def test_a_site_is_cut_off_in_both_directions_and_the_others_are_not():
    links = score_of(AT_5 + "where = 1\ncut = true").moment(6 * S).network.links
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
def test_paths_and_sites_are_named(where, lost):
    links = score_of(AT_5 + f"where = {where}\nloss = '2%'").moment(6 * S).network.links
    assert {pair for pair, link in links.items() if link.loss == 0.02} == lost


def test_changes_at_one_time_are_made_in_the_order_of_the_spec():
    links = (
        score_of(AT_5 + "rtt = 3.0", 'at = "6s"\nfor = "1s"\nrtt = "40ms"', AT_5 + "rtt = 2.0")
        .moment(6 * S)
        .network.links
    )
    assert {link.delay_ns for link in links.values()} == {40 * MS}
    later = score_of(AT_5 + "rtt = 3.0", AT_5 + "rtt = 2.0").moment(6 * S).network.links
    assert {link.delay_ns for link in later.values()} == {30 * MS}


def test_on_a_uniform_profile_a_rate_is_that_of_the_sites_own_links_and_buffers_stay():
    before = network_of(cell_of(AT_5 + "rate = 0.5"))
    halved = score_of(AT_5 + "where = 1\nrate = 0.5").moment(5 * S).network
    assert [queue.rate_bytes_per_s for queue in halved.up] == [1000 * MBIT, 500 * MBIT, 1000 * MBIT]
    assert [queue.buffer_bytes for queue in halved.down] == [queue.buffer_bytes for queue in before.down]
    everywhere = score_of(AT_5 + 'rate = "10Mbit"').moment(5 * S).network
    assert {queue.rate_bytes_per_s for queue in (*everywhere.up, *everywhere.down)} == {10 * MBIT}
    assert {link.queue.rate_bytes_per_s for link in everywhere.links.values()} == {None}


def test_on_a_named_profile_a_rate_is_that_of_the_paths_and_payload_scale_applies():
    text = edited(('rate = "1Gbit"', 'profile = "world4"'), ('rtt = ["10ms"]\n', ""), ("[2]", "[4]"),
                  ('step_time = "10ms"', 'step_time = "10ms"\npayload_scale = 0.1'))  # fmt: skip
    (cell,) = swept(text + '\n[[timeline]]\nat = "1s"\nwhere = "tokyo -> us-west-2"\nrate = "20Mbit"\n')
    network = schedule_of(cell).met({}).moment(S).network
    changed = {
        (network.sites[a], network.sites[b]): link.queue.rate_bytes_per_s
        for (a, b), link in network.links.items()
        if link != network_of(cell).links[a, b]
    }
    assert changed == {("tokyo", "oregon"): pytest.approx(2 * MBIT)}


def test_background_traffic_takes_its_rate_off():
    network = score_of(AT_5 + 'where = 2\ntraffic = "400Mbit"').moment(5 * S).network
    assert [queue.rate_bytes_per_s for queue in network.up] == [1000 * MBIT, 1000 * MBIT, 600 * MBIT]


def test_a_condition_is_not_known_before_it_is_met():
    entry = 'at = "8 steps"\nfor = "1s"\ncut = true'
    assert schedule_of(cell_of(entry)).awaited_steps == (8,)
    assert score_of(entry).times == ()
    assert score_of(entry, s8=3 * S).times == (3 * S, 4 * S)


def test_a_trace_leads_from_line_to_line(tmp_path, monkeypatch):
    (tmp_path / "day.csv").write_text("time_s,rtt_ms,rate_mbps,loss_pct\n0,20,100,\n2,30,,1\n4,20,50,0\n")
    monkeypatch.chdir(tmp_path)
    score = score_of('at = "10s"\nwhere = "w0 -> w1"\ntrace = "day.csv"')
    assert score.times == (10 * S, 12 * S, 14 * S)
    links = [score.moment(at).network.links[0, 1] for at in score.times]
    assert [link.delay_ns for link in links] == [10 * MS, 15 * MS, 10 * MS]
    assert [link.queue.rate_bytes_per_s for link in links] == [100 * MBIT, 100 * MBIT, 50 * MBIT]
    assert [link.loss for link in links] == [0, 0.01, 0]


def test_traces_of_equal_length_are_told_apart_in_words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.csv").write_text("time_s,rtt_ms\n0,20\n")
    (tmp_path / "two.csv").write_text("time_s,rtt_ms\n0,20\n1,30\n")
    (tmp_path / "other.csv").write_text("time_s,rtt_ms\n0,20\n1,31\n")
    said = [described(cell_of(f'at = "1s"\ntrace = "{name}.csv"').changes) for name in ("one", "two", "other")]
    digests = [
        hashlib.sha256(text).hexdigest()[:6]
        for text in (
            b'[{"rtt_ms":20.0,"time_s":0.0}]',
            b'[{"rtt_ms":20.0,"time_s":0.0},{"rtt_ms":30.0,"time_s":1.0}]',
            b'[{"rtt_ms":20.0,"time_s":0.0},{"rtt_ms":31.0,"time_s":1.0}]',
        )
    ]
    assert said == [
        f"everywhere: trace of {lines} ({digest}) at 1 s"
        for lines, digest in zip(("1 line", "2 lines", "2 lines"), digests, strict=True)
    ]
    spelled = cell_of('at = "1s"\ntrace = [{ time_s = 0, rtt_ms = 20 }]').changes
    assert described(spelled) == said[0]


def _all(score) -> list[tuple[float, str]]:
    return [(at / S, what) for at in score.times for what in score.what(at)]


def test_a_trace_is_one_event_at_its_begin_and_one_at_its_end_and_each_time_it_comes(tmp_path, monkeypatch):
    (tmp_path / "day.csv").write_text("time_s,rtt_ms\n0,20\n2,30\n4,20\n")
    monkeypatch.chdir(tmp_path)
    score = score_of('at = "10s"\nfor = "6s"\nevery = "20s"\ntimes = 2\nwhere = 1\ntrace = "day.csv"')
    assert score.times == tuple(S * at for at in (10, 12, 14, 16, 30, 32, 34, 36))
    said = _all(score)
    assert [(at, what.partition(" of ")[0]) for at, what in said] == [
        (10, "worker 1: trace"), (16, "worker 1: trace over"), (30, "worker 1: trace"), (36, "worker 1: trace over"),
    ]  # fmt: skip


def test_nothing_is_as_before_while_a_change_of_the_same_kind_at_the_same_place_holds():
    cuts = [f'at = "{at}s"\nfor = "{length}s"\nwhere = {where}\ncut = true' for at, length, where in
            ((1, 9, 1), (3, 2, '"w1"'), (4, 1, 2))]  # fmt: skip
    assert _all(score_of(*cuts, 'at = "2s"\nfor = "3s"\nwhere = 1\nrtt = 2.0')) == [
        (1, "worker 1: cut off"), (2, "worker 1: rtt × 2"), (3, "w1: cut off"), (4, "worker 2: cut off"),
        (5, "worker 2: healed"), (5, "worker 1: rtt as before"), (10, "worker 1: healed"),
    ]  # fmt: skip


def test_what_follows_at_once_on_its_like_is_said_and_not_that_this_is_over():
    score = score_of('at = "1s"\nfor = "2s"\nrtt = 2.0', 'at = "3s"\nfor = "2s"\nrtt = 3.0')
    assert _all(score) == [(1, "everywhere: rtt × 2"), (3, "everywhere: rtt × 3"), (5, "everywhere: rtt as before")]


def test_what_is_known_of_a_long_trace_costs_each_line_once(tmp_path, monkeypatch):
    """Calls are counted, since times on a shared host say little: of each line's edit, one where all are asked for."""
    lines = "".join(f"{line},{line % 7},{100 * (line % 2)}\n" for line in range(1000))
    (tmp_path / "long.csv").write_text(f"time_s,rtt_ms,loss_pct\n{lines}")
    monkeypatch.chdir(tmp_path)
    schedule = schedule_of(cell_of('at = "1s"\ntrace = "long.csv"'))
    assert schedule.met({}) is schedule.met({})
    asked = []
    monkeypatch.setattr("harness.timeline.schedule._Known.holds", lambda span, at: asked.append(at) or True)
    schedule.met({}).outages()
    assert len(asked) == 1000
    assert sum(len(schedule.met({}).what(at)) for at in schedule.met({}).times) == 1


def test_a_trace_is_part_of_the_cell_and_its_place_is_not(tmp_path, monkeypatch):
    keys = []
    for folder, rtt in (("a", 20), ("b", 20), ("c", 30)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "day.csv").write_text(f"time_s,rtt_ms\n0,{rtt}\n")
        monkeypatch.chdir(tmp_path / folder)
        keys.append(cell_of('at = "1s"\ntrace = "day.csv"').key)
    assert keys[0] == keys[1] != keys[2]


def test_outages_are_the_times_in_which_nothing_gets_through():
    outages = score_of(
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
    score = score_of(*(f'at = "{at}s"\nfor = "{length}s"\nwhere = {where}\ncut = true' for at, length, where in spans))
    links = score.moment(probe * S).network.links
    for pair, link in links.items():
        dark = any(
            begin <= probe * S and (end is None or probe * S < end) for begin, end in score.outages().get(pair, ())
        )
        assert dark == (link.loss == 1)


def _trace(*lines: tuple[int, int]) -> str:
    return "trace = [" + ", ".join(f"{{ time_s = {at}, loss_pct = {loss} }}" for at, loss in lines) + "]"


LIKE_A_CUT = ("cut = true", 'loss = "100%"', _trace((0, 100)), _trace((0, 100), (1, 100), (60, 100)))


@pytest.mark.parametrize("what", LIKE_A_CUT)
def test_workers_are_given_the_time_of_every_outage_however_it_is_written(what):
    plain, cut, twice = (
        cell_of(f'at = "2s"\n{more}\nwhere = 1\n{what if what_else is None else what_else}')
        for more, what_else in (
            ('for = "120s"', 'loss = "99%"'),
            ('for = "120s"', None),
            ('for = "120s"\nevery = "200s"\ntimes = 2', None),
        )
    )
    assert [patience_s(cell) - patience_s(plain) for cell in (cut, twice)] == pytest.approx([240, 480])
    assert expected_seconds(cut) - expected_seconds(plain) == pytest.approx(120)
    endless = cell_of(f'at = "2s"\nwhere = 1\n{what}')
    finite_s = 2 * 60 if "time_s = 60" in what else 0
    assert 0 < patience_s(endless) - patience_s(plain) - finite_s <= 120


def test_of_a_trace_the_lines_in_which_nothing_gets_through_count_as_outage():
    cell = cell_of(f'at = "2s"\nfor = "50s"\n{_trace((0, 0), (10, 100), (15, 100), (20, 99), (30, 100), (34, 0))}')
    assert planned_outage_s(cell.changes) == 10 + 4
    assert not has_endless_outage(cell.changes)


@pytest.mark.parametrize("what", LIKE_A_CUT)
def test_whoever_is_cut_off_is_named_however_it_is_written(what):
    score = score_of(f'at = "6s"\nfor = "120s"\nwhere = 1\n{what}')
    assert [score.cut_off(S * at) for at in (5, 6, 7, 125, 126)] == [[], *[["worker 1 since 6 s"]] * 3, []]
    assert score_of('at = "6s"\nwhere = 1\nloss = "99%"').cut_off(7 * S) == []


# ---------------------------------------------------------------- cells


def test_a_timeline_is_part_of_a_cell_and_no_part_of_a_lone_worker():
    plain, changed = swept(edited(("[2]", "[3]"))), swept(_spec(AT_5 + "cut = true"))
    assert plain[0].key != changed[0].key
    assert "timeline" not in plain[0].config
    assert changed[0].changes
    assert changed[0].predicted_step_time_s() is None  # the law speaks of a network that stays


def test_a_straggler_is_told_when_to_be_slow_and_nobody_else_is():
    todo = jobs(cell_of('at = "2s"\nfor = "1s"\nevery = "3s"\ntimes = 2\nwhere = 1\nslow = 3.0'), 0, "")
    assert [job.slow for job in todo] == [
        [],
        [{"factor": 3.0, "at_step": None, "begin_ns": b, "end_ns": b + S} for b in (2 * S, 5 * S)],
        [],
    ]


def test_only_rank_0_tells_steps():
    todo = jobs(cell_of('at = "7 steps"\ncut = true', 'at = "1 step"\nrtt = 2.0'), 0, "")
    assert [tuple(job.told_steps) for job in todo] == [(1, 7, todo[0].steps), (todo[0].steps,), (todo[0].steps,)]


def test_a_timeline_in_words():
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


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            'at = "5"\ncut = true',
            'timeline.0.at: expected a time such as "5s", or a count such as "40 steps", got \'5\'',
        ),
        ('at = "5s"', "timeline.0: expected exactly one of {kinds}, got none"),
        ('at = "5s"\ncut = true\nrtt = 2.0', "timeline.0: expected exactly one of {kinds}, got rtt and cut"),
        ('at = "5s"\ncutt = true', "timeline.0.cutt: unknown key; did you mean 'cut'?"),
        ('at = "5s"\ncut = false', "timeline.0.cut: expected true; leave it out where nothing is cut off"),
        ('at = "5s"\nfor = "0s"\ncut = true', "timeline.0.for: expected more than 0, got '0s'"),
        (
            'at = "5s"\nevery = "1s"\ntimes = 2\ncut = true',
            'timeline.0: every: what comes again has to end first; add for = "1s"',
        ),
        (
            'at = "5s"\nfor = "2s"\nevery = "2s"\ntimes = 2\ncut = true',
            "timeline.0: every: expected more than for, 2s, got 2s",
        ),
        (
            'at = "5s"\ntimes = 2\ncut = true',
            'timeline.0: times: says how often, and nothing says how far apart; add every = "2s"',
        ),
        (
            'at = "5s"\nwhere = "w7"\ncut = true',
            "timeline.0: where: no site 'w7'; expected one of w0, w1, w2, or a worker's number",
        ),
        ('at = "5s"\nwhere = 3\ncut = true', "timeline.0: where: no worker 3; they are numbered 0 to 2"),
        (
            'at = "5s"\nwhere = "w1 -> w1"\ncut = true',
            "timeline.0: where: 'w1 -> w1' is no path; name two different sites",
        ),
        (
            'at = "5s"\nwhere = "w0 -> w1"\nrtt = "1s"',
            'timeline.0: rtt: a directed path has a one-way delay; use one_way, or where = "a <-> b"',
        ),
        (
            'at = "5s"\nwhere = "w0 -> w1"\nslow = 2.0',
            "timeline.0: where: workers are slow, not paths; name a site or a worker's number",
        ),
        ('at = "5s"\nwhere = 1\nkill = false', "timeline.0.kill: expected true; leave it out where nobody is killed"),
        (
            'at = "5s"\nkill = true',
            "timeline.0: where: not everybody can be killed; name a site or a worker's number",
        ),
        (
            'at = "5s"\nwhere = "w0 <-> w1"\nkill = true',
            "timeline.0: where: workers are killed, not paths; name a site or a worker's number",
        ),
        (
            'at = "5s"\nwhere = 1\nkill = true',
            "timeline.0.kill: built-in trainers cannot form their group anew; take the worker off the network for a "
            "while with cut, or run a command (workload.command) whose program can be started again",
        ),
        (
            'at = "5s"\ntraffic = "1Gbit"',
            "timeline.0: traffic of 1000 Mbit/s leaves nothing of 1000 Mbit/s; expected less",
        ),
        (
            'at = "5s"\nwhere = "w0 -> w1"\nrate = 0.5',
            "timeline.0: a factor needs a rate, and nothing there has one; name a place that has, or set a rate first",
        ),
        (
            'at = "5s"\njitter = "2ms"',
            "timeline.0: w0 -> w1: jitter 2 ms with a one-way delay of 5 ms; expected at most a third",
        ),
        (
            'at = "99 steps"\ncut = true',
            "timeline.0.at: algorithm=ssgd, workers=3, rtt=10ms has 23 steps; expected fewer than "
            "that, or a larger run.window",
        ),
        ('at = "5s"\ntrace = "none.csv"', "timeline.0.trace: none.csv: cannot be read: No such file or directory"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(entry, message):
    said = refused(entry)
    assert said.removeprefix("x.toml: ").removeprefix("x.toml (sweep): ") == message.format(kinds=", ".join(KINDS))


def test_changes_that_go_one_by_one_and_not_together_are_refused():
    said = refused('at = "1s"\ntraffic = "600Mbit"', 'at = "3s"\ntraffic = "500Mbit"')
    assert said == (
        "x.toml: timeline: changes together, 3 s: traffic of 500 Mbit/s leaves nothing of 400 Mbit/s; expected less"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time_s\n0\n", "expected the columns time_s and at least one of {values}, got 'time_s'"),
        ("time_s,rtt_ms\n0,1\n0,2\n", "time_s: expected more than 0, as in the line before, got 0"),
        ("time_s,rtt_ms\n0,fast\n", "line 2: rtt_ms: expected a number, got 'fast'"),
        ("time_s,rate_mbps\n0,0\n", "rate_mbps: expected 1e-06 to 1000000, got 0"),
        ("time_s,loss_pct\n0,101\n", "loss_pct: expected 0 to 100, got 101"),
        ("time_s,rtt_ms\n", "expected 1 to 2000 lines of values, got 0"),
    ],
)
def test_a_broken_trace_is_refused_in_one_line(tmp_path, monkeypatch, text, message):
    (tmp_path / "t.csv").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert (
        refused('at = "5s"\ntrace = "t.csv"')
        == f"x.toml: timeline.0.trace: t.csv: {message.format(values=', '.join(VALUES))}"
    )


NINES = "9" * 5000
NO_SITE = "timeline.0: where: no site {!r}; expected one of w0, w1, w2, or a worker's number"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('at = "5s"\nwhere = "²"\ncut = true', NO_SITE.format("²")),
        ('at = "5s"\nwhere = "² -> 1"\ncut = true', NO_SITE.format("²")),
        (f'at = "5s"\nwhere = "{NINES}"\ncut = true', NO_SITE.format(NINES)),
        (f'at = "5s"\nwhere = "0 -> {NINES}"\ncut = true', NO_SITE.format(NINES)),
        (
            f'at = "{NINES} steps"\ncut = true',
            f'timeline.0.at: expected a time such as "5s", or a count such as "40 steps", got \'{NINES} steps\'',
        ),
        ('at = "1e30s"\ncut = true', "timeline.0.at: expected at most 1000000 s, got '1e30s'"),
        ('at = "1s"\nfor = "1e30s"\ncut = true', "timeline.0.for: expected at most 1000000 s, got '1e30s'"),
        ('at = "1s"\nrtt = "1e30s"', "timeline.0.rtt: expected at most 1000000 s, got '1e30s'"),
        ('at = "1s"\nrate = "1e9Gbit"', "timeline.0.rate: expected at most 1000000 Mbit, got '1e9Gbit'"),
        ('at = "1s"\ntraffic = "1e9Gbit"', "timeline.0.traffic: expected at most 1000000 Mbit, got '1e9Gbit'"),
        ('at = "1s"\nrtt = 1e308', "timeline.0.rtt: expected a string in quotes or at most 1000000.0, got 1e+308"),
        ('at = "1s"\nrate = 1e308', "timeline.0.rate: expected a string in quotes or at most 1000000.0, got 1e+308"),
        ('at = "1s"\nrate = 1e-308', "timeline.0.rate: expected a string in quotes or at least 1e-06, got 1e-308"),
        ('at = "1s"\nslow = 1e308', "timeline.0.slow: expected at most 1000000.0, got 1e+308"),
        (
            'at = "1s"\none_way = 1e6\n[[timeline]]\nat = "2s"\none_way = 1e6',
            "timeline: changes together, 2 s: w0 -> w1: a one-way delay of 5e+12 ms; expected at most 1000000 s",
        ),
        (f'at = "1s"\ntrace = "{NINES}"', f"timeline.0.trace: {NINES}: cannot be read: File name too long"),
    ],
    ids=lambda text: text[:50],
)
def test_strange_values_are_refused_in_one_line_too(entry, message):
    assert refused(entry).removeprefix("x.toml: ") == message


def test_a_worker_of_too_many_digits_is_refused_in_one_line():
    said = refused(f'at = "5s"\nwhere = {NINES}\ncut = true')
    assert said.startswith("x.toml: not valid TOML: Exceeds the limit (4300 digits)")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("time_s = 0, rate_mbps = 1e-7", "rate_mbps: expected 1e-06 to 1000000, got 1e-07"),
        ("time_s = 0, rate_mbps = 1e305", "rate_mbps: expected 1e-06 to 1000000, got 1e+305"),
        ("time_s = 0, rtt_ms = 1e304", "rtt_ms: expected 0 to 1000000000, got 1e+304"),
        (f"time_s = 0, rtt_ms = {NINES[:400]}", f"rtt_ms: expected 0 to 1000000000, got {NINES[:400]}"),
        ("time_s = 1e301, rtt_ms = 1", "time_s: expected 0 to 1000000, got 1e+301"),
        ("time_s = 0, rtt_ms = 1 }, { time_s = 1e-12, rtt_ms = 2",
         "time_s: expected more than 0, as in the line before, got 1e-12"),
    ],
    ids=lambda text: text[:50],
)  # fmt: skip
def test_strange_lines_of_a_trace_are_refused_in_one_line_too(line, message):
    assert refused(f'at = "5s"\ntrace = [{{ {line} }}]') == f"x.toml: timeline.0.trace: {message}"


@pytest.mark.parametrize("error", [OverflowError("int too large"), UnitError("no such rate"), ValueError("nothing")])
def test_whatever_a_change_cannot_compute_is_an_error_of_the_timeline(error, monkeypatch):
    def fail(*_):
        raise error

    cell = cell_of('at = "5s"\nrtt = 2.0')
    monkeypatch.setattr("harness.timeline.edits._delayed", fail)
    with pytest.raises(TimelineError, match=f"^timeline.0: {error}$"):
        schedule_of(cell).check()


def test_a_trace_that_a_spreadsheet_saved_is_read(tmp_path, monkeypatch):
    (tmp_path / "day.csv").write_bytes(b"\xef\xbb\xbftime_s,rtt_ms\r\n0,20\r\n")
    monkeypatch.chdir(tmp_path)
    assert cell_of('at = "1s"\ntrace = "day.csv"').changes[0].value == [{"time_s": 0.0, "rtt_ms": 20.0}]


def test_of_a_file_that_is_too_long_the_rest_is_not_read(tmp_path):
    (tmp_path / "long.csv").write_text(
        "time_s,rtt_ms\n" + "".join(f"{line},20\n" for line in range(2000)) + "2000,20\n" + "no number,20\n"
    )
    with pytest.raises(SpecError, match=r"long\.csv: expected 1 to 2000 lines of values, got more$"):
        read_trace(tmp_path / "long.csv", "t")


def test_real_compute_cannot_be_slowed():
    said = refusal(
        ('params = 1000\ntensors = 2\nstep_time = "10ms"', 'name = "digits-cnn"\nstep_time = "real"'),
        ("[algorithms]", '[[timeline]]\nat = "1s"\nslow = 2.0\n[algorithms]'),
    )
    assert (
        said
        == 'x.toml: timeline.0.slow: compute that is real cannot be slowed; set workload.step_time, such as "300ms"'
    )
