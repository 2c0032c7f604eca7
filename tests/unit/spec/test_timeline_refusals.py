"""[[timeline]]: which entries and traces are refused, each in one line, and what is read all the same."""

from __future__ import annotations

import pytest
from small_spec import edited, refusal, swept

from wanbench.harness.errors import SpecError
from wanbench.harness.spec.timeline import KINDS, VALUES, read_trace
from wanbench.harness.timeline.edits import TimelineError
from wanbench.netprofiles import UnitError


def refused(*entries: str) -> str:
    return refusal(("[2]", "[3]"), ("[algorithms]", "".join(f"[[timeline]]\n{e}\n" for e in entries) + "[algorithms]"))


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
        ('at = "5s"\ncut = false', "timeline.0.cut: expected true; remove cut if nothing changes"),
        ('at = "5s"\nfor = "0s"\ncut = true', "timeline.0.for: expected more than 0, got '0s'"),
        (
            'at = "5s"\nevery = "1s"\ntimes = 2\ncut = true',
            'timeline.0: every: a change that repeats needs a duration; add for = "1s"',
        ),
        (
            'at = "5s"\nfor = "2s"\nevery = "2s"\ntimes = 2\ncut = true',
            "timeline.0: every: expected more than for, 2s, got 2s",
        ),
        (
            'at = "5s"\ntimes = 2\ncut = true',
            'timeline.0: times: needs an interval; add every = "2s"',
        ),
        (
            'at = "5s"\nwhere = "w7"\ncut = true',
            "timeline.0: where: no site 'w7'; expected one of w0, w1, w2, or a worker's number",
        ),
        ('at = "5s"\nwhere = 3\ncut = true', "timeline.0: where: no worker 3; expected 0 to 2"),
        (
            'at = "5s"\nwhere = "w1 -> w1"\ncut = true',
            "timeline.0: where: 'w1 -> w1' is not a path; name two different sites",
        ),
        (
            'at = "5s"\nwhere = "w0 -> w1"\nrtt = "1s"',
            'timeline.0: rtt: a directed path has a one-way delay; use one_way, or where = "a <-> b"',
        ),
        (
            'at = "5s"\nwhere = "w0 -> w1"\nslow = 2.0',
            "timeline.0: where: only workers are slow, not paths; name a site or a worker's number",
        ),
        ('at = "5s"\nwhere = 1\nkill = false', "timeline.0.kill: expected true; remove kill if nothing changes"),
        (
            'at = "5s"\nkill = true',
            "timeline.0: where: required with kill; name a site or a worker's number",
        ),
        (
            'at = "5s"\nwhere = "w0 <-> w1"\nkill = true',
            "timeline.0: where: only workers are killed, not paths; name a site or a worker's number",
        ),
        (
            'at = "5s"\ntraffic = "1Gbit"',
            "timeline.0: traffic of 1000 Mbit/s needs the whole rate of 1000 Mbit/s; expected less",
        ),
        (
            'at = "5s"\nwhere = "w0 -> w1"\nrate = 0.5',
            "timeline.0: a factor needs a rate limit, and this place has none; name another place, or set a "
            "rate there first",
        ),
        (
            'at = "5s"\njitter = "2ms"',
            "timeline.0: w0 -> w1: jitter 2 ms with one-way delay 5 ms; expected at most a third",
        ),
        (
            'at = "5s"\ntrace = [{ time_s = 0, loss_pct = 81, loss_burst = 4 }]',
            "timeline.0: w0 -> w1: loss 81% in bursts of 4; expected at most 80%",
        ),
        (
            'at = "5s"\nloss_burst = 0.5',
            "timeline.0.loss_burst: a number of packets is 1 or more, or 0 for none, not 0.5",
        ),
        (
            'at = "99 steps"\ncut = true',
            "timeline.0.at: algorithm=ssgd, workers=3, rtt=10ms has 23 steps; expected an earlier "
            "step, or a larger run.window",
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
        "x.toml: timeline: changes together at 3 s: "
        "traffic of 500 Mbit/s needs the whole rate of 400 Mbit/s; expected less"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time_s\n0\n", "expected the columns time_s and at least one of {values}, got 'time_s'"),
        ("time_s,rtt_ms,rtt_ms\n0,1,2\n", "two columns have the same name; keep one: 'time_s', 'rtt_ms', 'rtt_ms'"),
        ("time_s,rtt_ms\n0,1\n0,2\n", "time_s: expected more than 0, as in the line before, got 0"),
        ("time_s,rtt_ms\n0,fast\n", "line 2: rtt_ms: expected a number, got 'fast'"),
        ("time_s,rate_mbps\n0,0\n", "rate_mbps: expected 1e-06 to 1000000, got 0"),
        ("time_s,loss_pct\n0,101\n", "loss_pct: expected 0 to 100, got 101"),
        ("time_s,loss_burst\n0,0.5\n", "loss_burst: expected 0, or 1 to 1000000, got 0.5"),
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
            "timeline: changes together at 2 s: w0 -> w1: one-way delay 5e+12 ms; expected at most 1000000 s",
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
        ("time_s = 0, rtt_ms = 9999999999999", "rtt_ms: expected 0 to 1000000000, got 9999999999999"),
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

    (cell,) = swept(edited() + '\n[[timeline]]\nat = "5s"\nrtt = 2.0\n')
    monkeypatch.setattr("wanbench.harness.timeline.edits._impaired", fail)
    with pytest.raises(TimelineError, match=f"^timeline.0: {error}$"):
        cell.repetition(0).schedule.check()


def test_a_trace_that_a_spreadsheet_saved_is_read(tmp_path, monkeypatch):
    (tmp_path / "day.csv").write_bytes(b"\xef\xbb\xbftime_s,rtt_ms\r\n0,20\r\n")
    monkeypatch.chdir(tmp_path)
    (cell,) = swept(edited() + '\n[[timeline]]\nat = "1s"\ntrace = "day.csv"\n')
    assert cell.changes[0].value == [{"time_s": 0.0, "rtt_ms": 20.0}]


def test_a_trace_can_end_bursts_of_loss():
    (cell,) = swept(edited() + '\n[[timeline]]\nat = "1s"\ntrace = [{ time_s = 0, loss_pct = 1, loss_burst = 0 }]\n')
    cell.repetition(0).schedule.check()
    assert cell.changes[0].value[0]["loss_burst"] == 0


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
    assert said == 'x.toml: timeline.0.slow: real compute cannot be slowed; set workload.step_time, such as "300ms"'
