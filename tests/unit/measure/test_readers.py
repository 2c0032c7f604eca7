"""Outputs of ping and iperf3 as people have them: each is read rightly, by `measure` and `trace` alike, or refused."""

from datetime import date
from pathlib import Path

import pytest
from command_line import as_it_was, refused, wanbench  # noqa: F401
from hypothesis import given, settings
from hypothesis import strategies as st

from wanbench.harness.errors import SpecError
from wanbench.harness.measure.ping import read_pings
from wanbench.harness.measure.profile import read
from wanbench.harness.timeline.convert import convert
from wanbench.netprofiles import load
from wanbench.netprofiles.user_file import read_text

CASES = Path(__file__).parent / "cases"
DAY = date(2026, 11, 21)

# The pings that were sent, which of them were not answered (from 0), and the median of the round trips.
WHOLE = {
    "fping.txt": (10, [], 80.45),
    "fping-c.txt": (10, [3, 9], 12.45),
    "fping-C-q.txt": (10, [2, 9], 12.45),
    "fping-D-duplicate.txt": (5, [], 12.2),
    "iputils-mixed.txt": (12, [11], 85.0),
    "loss-20-percent-of-round-trips.txt": (500, list(range(4, 500, 5)), 20.1),
    "no-statistics.txt": (11, [3, 7], 85.0),
    "windows-en.txt": (20, [7, 12], 85.0),
    "busybox-first-lost-duplicates.txt": (10, [0], 12.5),
    "iputils-O-D-out-of-order.txt": (10, [4, 9], 12.5),
    "iputils-wrapped.txt": (10, [4, 7], 10.0),
    "windows-below-1ms.txt": (10, [], 1.0),
    **{
        f"{name}.txt": (10, [3, 9], 12.45)
        for name in ("busybox", "macos", "macos-interrupted", "inetutils", "iputils-2010", "iputils-6")
    },
    **{f"iputils-{language}.txt": (10, [3, 9], 12.45) for language in ("de", "fr", "ja", "zh")},
    **{
        f"windows-{kind}.txt": (10, [2, 8], 85.0)
        for kind in (
            "de-cp850", "es", "fr-cp850", "ipv6", "it", "ja", "pt-utf16", "ru-cp866", "tr", "unreachable", "zh-gbk",
        )
    },
}  # fmt: skip
AGAIN = "ping begins again, or another host answers"
REFUSED = {
    "two-hosts.txt": f"line 18: {AGAIN}",
    "fping-two-hosts.txt": f"line 2: {AGAIN}",
    "fping-C-two-hosts.txt": f"line 2: {AGAIN}",
    "iputils-broadcast.txt": f"line 3: {AGAIN}",
    "iputils-grep.txt": f"line 4: {AGAIN}",
    "iputils-quiet.txt": "line 4: the statistics count 8 answers to 10 pings, the lines 0; expected the whole output",
    "iputils-tail.txt": "line 8: the statistics count 8 answers to 10 pings, the lines 5; expected the whole output",
    "iputils-small.txt": "line 2: expected an answer with its time in ms",
    "prose.txt": "expected ",
    "text.txt": "expected ",
    "cut-off.json": "not a report of iperf3; expected the JSON of `iperf3 -c HOST -J`",
    "two-reports.json": "two reports of iperf3; expected one, so give each its own file",
    "json-stream-error.json": "iperf3 failed: unable to connect to server",
}
# Mbit/s at the receiver, and whether it is the machine that ran iperf3.
RATES = {
    "bidir-3.7.json": [(940, False), (35, True)],
    "bidir-3.12.json": [(3636.743, False), (5849.962, True)],
    "json-stream.json": [(94, False)],
    "json-stream-3.17.json": [(94, False)],
    "json-stream-full-3.18.json": [(94, False)],
    "warning-first.json": [(94, False)],
    "utf-16.json": [(94, False)],
    "server-3.12.json": [(94, True)],
    "reverse-3.12.json": [(8227.078, True)],
    "udp-3.1.json": [(80, False)],
    "udp-3.12.json": [(10.219, False)],
    "udp-reverse-3.12.json": [(10.223, True)],
    "udp-bidir-3.12.json": [(10.197, False), (10.197, True)],
}
# Only a trace has a use for them.
WITHOUT_A_VALUE = {
    "iputils-none.txt": "none of 4 pings was answered",
    "interrupted-3.12.json": "iperf3 failed: interrupt - the client has terminated",
    "json-stream-cut-off.json": "the report of iperf3 has no end",
    "udp-nan.json": "iperf3: the receiver of UDP counted no packet",
}


def text_of(name):
    return read_text(CASES / name, errors="replace")


def test_every_file_has_its_right_answer():
    known = {*WHOLE, *REFUSED, *RATES, *WITHOUT_A_VALUE, "windows-cut-off.txt"}
    assert {each.name for each in CASES.iterdir()} == known


@pytest.mark.parametrize("name", WHOLE)
def test_measure_and_trace_see_the_same_pings(name):
    sent, missing, rtt_ms = WHOLE[name]
    (reading,) = read(text_of(name), name, DAY)
    each_way = 100 * (1 - (1 - len(missing) / sent) ** 0.5)
    assert reading.rtt_ms == rtt_ms
    assert reading.loss_pct == pytest.approx(each_way, abs=1e-4)
    if missing:
        assert f"{sent - len(missing)} of {sent} answers, {100 * len(missing) / sent:.4g} % of round" in reading.source
        assert f"{each_way:.4g} % each way" in reading.source
    interval_s = read_pings(text_of(name)).interval_s or 1.0
    points = convert(text_of(name), name, every_s=interval_s).points
    assert [number for number, point in enumerate(points) if point["loss_pct"] == 100] == missing
    assert len(points) == sent
    assert [number for number, point in enumerate(points) if "rtt_ms" not in point] == missing


STAMPS = {
    "ts": "May 27 {h:02}:{m:02}:{s:02} ",
    "ts with decimals": "[2026-05-27 {h:02}:{m:02}:{s:02}.250000] ",
    "seconds": "{since:.0f} ",
    "seconds with decimals": "{since:.6f} ",
    "date": "Wed May 27 {h:02}:{m:02}:{s:02} CEST 2026: ",
    "a log": "2026-05-27 {h:02}:{m:02}:{s:02},250 INFO - ",
    "ISO 8601": "2026-05-27T{h:02}:{m:02}:{s:02}+0200 ",
    "macOS --apple-time": "{h:02}:{m:02}:{s:02}.250000 ",
    "PowerShell": "5/27/2026 {half}:{m:02}:{s:02} {noon} - ",
}


def stamp(style, second):
    """What the program puts before a line, `second` s after 23:59:55."""
    since = 1_700_000_000 + 86_395 + second
    h, m, s = (since // 3600) % 24, since // 60 % 60, since % 60
    return STAMPS[style].format(h=h, m=m, s=s, since=since, half=(h - 1) % 12 + 1, noon="AM" if h < 12 else "PM")


@pytest.mark.parametrize("style", STAMPS)
def test_a_stamp_before_each_line_changes_no_answer(style):
    for name in WHOLE.keys() - {"fping-C-q.txt"}:  # which has one line for all pings
        lines = text_of(name).splitlines(keepends=True)
        stamped = read_pings("".join(stamp(style, second) + line for second, line in enumerate(lines)))
        plain = read_pings("".join(lines))
        assert (stamped.rtts_ms, stamped.sent, stamped.summary) == (plain.rtts_ms, plain.sent, plain.summary), name


@pytest.mark.parametrize("style", STAMPS)
@pytest.mark.parametrize("begin_s", [0, 12 * 3600])
def test_stamps_give_the_interval_also_through_noon_and_midnight(style, begin_s):
    answer = "64 bytes from 2001:db8:10:20:30:40:50:60: icmp_seq={} ttl=52 time=9 ms"
    lines = [stamp(style, begin_s + 5 * number) + answer.format(number) for number in (1, 2, 3, 5)]
    assert read_pings("\n".join([*lines, ""])).interval_s == pytest.approx(5)


@pytest.mark.parametrize("first", ["[1700000000.500000]", "1700000000"])
def test_seconds_since_1970_have_no_longest_gap(first):
    last = first.replace("1700000000", f"{1_700_000_000 + 2 * 3600 * 20}")
    answer = "{} 64 bytes from 192.0.2.1: icmp_seq={} time=9 ms\n"
    assert read_pings(answer.format(first, 1) + answer.format(last, 21)).interval_s == 2 * 3600


def test_stamps_in_seconds_are_coarser_than_the_statistics_and_may_say_nothing():
    lines = [f"10:00:00 64 bytes from 192.0.2.1: icmp_seq={number} ttl=52 time=9 ms\n" for number in (1, 2, 3)]
    assert read_pings("".join(lines)).interval_s is None
    counted = "10:00:00 3 packets transmitted, 3 received, 0% packet loss, time 400ms\n"
    assert read_pings("".join([*lines, counted])).interval_s == 0.2


def test_two_runs_in_one_log_with_stamps_are_refused():
    line = "64 bytes from 192.0.2.1: icmp_seq={} ttl=52 time=9 ms\n"
    runs = ["PING 192.0.2.1 (192.0.2.1) 56(84) bytes of data.\n", line.format(1)], ["PING x\n", line.format(2)]
    with pytest.raises(ValueError, match="line 3: ping begins again"):
        read_pings("".join(f"10:00:00 {line}" for run in runs for line in run))


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_one_run_is_refused_by_both_in_one_line(tmp_path, name):
    for command in (("measure", f"a,b={CASES / name}", "-o", "m.toml"), ("trace", str(CASES / name))):
        line = refused(*command)
        assert "\n" not in line
        assert line.removeprefix("wanbench: ").removeprefix(f"{CASES}/").startswith(f"{name}: {REFUSED[name]}")
    assert not (tmp_path / "m.toml").exists()


@pytest.mark.parametrize("name", RATES)
def test_the_rate_is_what_the_receiver_counted_in_each_direction(name):
    readings = read(text_of(name), name, DAY)
    assert [(reading.rate_mbps, reading.back) for reading in readings] == RATES[name]


@pytest.mark.parametrize("name", WITHOUT_A_VALUE)
def test_what_measured_nothing_makes_no_profile(name):
    with pytest.raises(SpecError, match=WITHOUT_A_VALUE[name]):
        read(text_of(name), name, DAY)


def test_a_trace_of_an_outage_or_of_an_interrupted_iperf3_says_so():
    made = convert(text_of("iputils-none.txt"), "f")
    assert [point["loss_pct"] for point in made.points] == [100] * 4
    made = convert(text_of("interrupted-3.12.json"), "f")
    assert made.points[0]["rate_mbps"] == pytest.approx(9168.234, abs=1e-3)
    assert made.remarks[1] == "iperf3 ended early: interrupt - the client has terminated"
    assert convert(text_of("bidir-3.7.json"), "f").remarks[1].startswith("--bidir: the rate is that of what was sent ")


def test_a_profile_says_that_a_loss_is_unknown():
    result = wanbench("measure", f"a,b={CASES / 'windows-cut-off.txt'}", "-o", "m.toml")
    assert result.exit_code == 0, result.stderr
    profile = load("m.toml")
    assert profile.path("a", "b").loss.value == 0
    assert "loss" not in profile.path("a", "b").provenance
    (note,) = profile.notes
    assert note.startswith("a -> b: the loss is unknown, so the path has none (ping, 8 answers, loss unknown, ")
    assert not any("loss_pct" in point for point in convert(text_of("windows-cut-off.txt"), "f").points)


def test_both_directions_of_bidir_become_two_paths():
    sources = (f"a,b={CASES / 'iputils-mixed.txt'}", f"a,b={CASES / 'bidir-3.7.json'}")
    assert wanbench("measure", *sources, "-o", "m.toml").exit_code == 0
    rates = [load("m.toml").path(*pair).rate.mbit for pair in (("a", "b"), ("b", "a"))]
    assert rates == [940, 35]


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("iputils-mixed.txt", "12 Pakete", "11 Pakete"),
        ("iputils-mixed.txt", "12 Pakete", "10 Pakete"),
        ("iputils-2010.txt", "20% packet", "0% packet"),
        ("busybox.txt", "10 packets transmitted, 8", "8 packets transmitted, 8"),
        ("windows-en.txt", "Sent = 20, Received = 18, Lost = 2", "Sent = 18, Received = 18, Lost = 0"),
        ("fping-c.txt", "xmt/rcv/%loss = 10/8/20%", "xmt/rcv/%loss = 8/8/0%"),
    ],
)
def test_statistics_that_contradict_themselves_or_the_lines_are_refused(name, before, after):
    text = text_of(name)
    assert before in text
    with pytest.raises(SpecError, match=f"{name}: line [0-9]+: the (numbers|statistics) "):
        read(text.replace(before, after), name, DAY)


LOSSY = sorted(name for name, (_, missing, _) in WHOLE.items() if missing)


@settings(max_examples=400, derandomize=True, database=None, deadline=None)
@given(st.sampled_from(LOSSY), st.data())
def test_a_damaged_log_with_losses_never_becomes_one_that_was_all_answered(name, data):
    """A loss that the lines still show is counted, or the file is refused, or the loss is unknown.

    Lines are lost, doubled or cut off, and digits change. `shown` is a ping between two answers, or named in a line.
    """
    lines = text_of(name).splitlines(keepends=True)
    kind, place = data.draw(st.sampled_from(["drop", "double", "cut", "digit", "end"])), data.draw(st.integers(0, 600))
    line = place % len(lines)
    if kind == "drop":
        del lines[line]
    elif kind == "double":
        lines.insert(line, lines[line])
    elif kind == "end":
        lines = lines[: line + 1]
    elif kind == "cut":
        lines[line] = lines[line][: data.draw(st.integers(0, len(lines[line])))]
    else:
        digits = [at for at, letter in enumerate(lines[line]) if letter.isascii() and letter.isdigit()]
        if digits:
            at = digits[place % len(digits)]
            lines[line] = lines[line][:at] + str(place % 10) + lines[line][at + 1 :]
    _, missing, _ = WHOLE[name]
    try:
        (reading,) = read("".join(lines), name, DAY)
    except SpecError:
        return
    counted = sum("=" in line or "bytes," in line for line in lines)
    if reading.loss_pct == 0:
        # Nothing in the text says otherwise: it ends before the first loss, or has no line and no gap for it.
        assert "without statistics" in reading.source
        assert "none missing between them" in reading.source
        assert kind in ("end", "cut", "drop", "digit")
        assert counted <= missing[0] + 3 or len(missing) == 1
