"""`measure`: turn the output of ping and iperf3 into a profile with sources."""

import json
import os
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from command_line import as_it_was, refused, wanbench  # noqa: F401

from wanbench.harness.measure.profile import read
from wanbench.netprofiles import Provenance, load

DAY = date(2026, 11, 21)
TIMES = (84.9, 85.0, 85.1, 85.2, 85.0, 84.8, 85.3, 85.0, 85.1, 84.9, 120.0)
PING = (
    "PING 203.0.113.7 (203.0.113.7) 56(84) bytes of data.\n"
    + "".join(f"64 bytes from 203.0.113.7: icmp_seq={n} ttl=52 time={t} ms\n" for n, t in enumerate(TIMES, 1))
    + "\n--- 203.0.113.7 ping statistics ---\n"
    "12 packets transmitted, 11 received, 8.33333% packet loss, time 2405ms\n"
    "rtt min/avg/max/mdev = 84.800/88.209/120.000/10.05 ms\n"
)
RECORDED = json.loads((Path(__file__).parent / "iperf3_shared_link.json").read_text())
"""Output of iperf3 3.12 without its intervals: two hosts alone and at once, behind a proxy that sends 20 Mbit/s."""


def iperf3(mbps, host="london", flows=1, begun_s=0, back=False):
    return json.dumps(
        {
            "start": {
                "connected": [{}] * flows,
                "timestamp": {"timesecs": begun_s},
                "connecting_to": {"host": host, "port": 5201},
                "test_start": {"reverse": int(back)},
            },
            "end": {
                "sum_sent": {"bits_per_second": 1e6 * mbps + 2e7, "seconds": 10.0},
                "sum_received": {"bits_per_second": 1e6 * mbps, "seconds": 10.04},
            },
        }
    )


IPERF = iperf3(940)


@pytest.fixture
def measured(tmp_path):
    """Write outputs of iperf3 by name, and pings as p; return what `measure` makes of home, london, tokyo and more."""

    def profile(outputs, *more):
        for name, text in {**outputs, "p": PING}.items():
            (tmp_path / name).write_text(text)
        result = wanbench("measure", *PINGS, *more, "-o", "mine.toml")
        assert result.exit_code == 0, result.stderr
        return load("mine.toml")

    return profile


PINGS = ("home,london=p", "home,tokyo=p", "london,tokyo=p")
ALONE_AND_AT_ONCE = ("home,london=l", "home,tokyo=t", "home=l2", "home=t2")


def test_one_late_answer_changes_neither_the_round_trip_nor_the_jitter():
    (reading,) = read(PING, "ping.txt", DAY)
    assert reading.rtt_ms == 85.0
    assert reading.jitter_ms == pytest.approx(0.11, abs=0.04)
    assert reading.loss_pct == pytest.approx(100 * (1 - (11 / 12) ** 0.5), abs=1e-4)
    assert reading.source == (
        "ping, 11 of 12 answers, 8.333 % of round trips lost is 4.257 % each way, ping.txt, 2026-11-21"
    )


ANSWERED = PING.replace("12 packets transmitted", "11 packets transmitted").replace("8.33333%", "0%")


def test_without_a_lost_packet_no_loss_is_written(tmp_path):
    (tmp_path / "p").write_text(ANSWERED)
    assert wanbench("measure", "a,b=p", "-o", "mine.toml").exit_code == 0
    path = load("mine.toml").path("a", "b")
    assert path.loss.value == 0
    assert "loss" not in path.provenance


def test_the_rate_is_that_of_the_receiver():
    (reading,) = read(IPERF, "iperf.json", DAY)
    assert reading.rate_mbps == 940
    assert reading.source == "iperf3, one flow, 10 s, iperf.json, 2026-11-21"


@pytest.mark.parametrize("received", [{}, {"sum_received": {"bits_per_second": 2e7, "seconds": 10}}])
def test_the_rate_of_udp_is_what_arrives_and_its_loss_is_not_that_of_the_path(measured, received):
    sent = {"bits_per_second": 1e8, "seconds": 10, "packets": 1000, "lost_packets": 800, "lost_percent": 80}
    path = measured({"udp": json.dumps({"end": {"sum": sent, **received}})}, "home,london=udp").path("home", "london")
    assert path.rate.mbit == pytest.approx(20)
    assert path.loss.value == pytest.approx(1 - (11 / 12) ** 0.5, abs=1e-6)  # of the pings


def test_files_become_a_profile_that_names_its_sources(tmp_path):
    for name, text in (("ping.txt", PING), ("iperf.json", IPERF)):
        (tmp_path / name).write_text(text)
        taken = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
        os.utime(tmp_path / name, (taken, taken))
    result = wanbench("measure", "home,london=ping.txt", "home,london=iperf.json", "-o", "mine.toml")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "mine.toml\n"
    path = load("mine.toml").path("london", "home")
    assert (path.delay.ms, path.rate.mbit) == (42.5, 940)
    shown = wanbench("show", "profile", "mine.toml").stdout
    assert "measured" in shown
    assert "iperf3, one flow, 10 s, iperf.json, 2026-03-01" in shown


def test_a_ping_in_one_direction_is_the_round_trip_of_both(tmp_path):
    for name, text in (("ping.txt", PING), ("iperf.json", IPERF)):
        (tmp_path / name).write_text(text)
    sources = ("home,london=ping.txt", "home,london=iperf.json", "london,home=iperf.json")
    assert wanbench("measure", *sources, "-o", "mine.toml").exit_code == 0
    there, back = load("mine.toml").path("home", "london"), load("mine.toml").path("london", "home")
    assert (there.delay.ms, there.rate.mbit) == (back.delay.ms, back.rate.mbit) == (42.5, 940)


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("london", "wanbench: london: expected SRC,DST=FILE or SRC=FILE, e.g. home,london=ping.txt"),
        ("a,b=", "wanbench: a,b=: expected SRC,DST=FILE or SRC=FILE, e.g. home,london=ping.txt"),
        ("a,b@c", "wanbench: a,b@c: measure reads files; run `ping HOST > FILE`, and give SRC,DST=FILE"),
        ("a=p.txt", "wanbench: a=p.txt: output of ping; SRC=FILE reads the JSON of iperf3, a path is SRC,DST=FILE"),
        ("a,b=none.txt", "wanbench: none.txt: cannot be read: No such file or directory"),
        ("a,b=iperf.json", "wanbench: a,b: no round-trip time; add output of ping"),
        (
            "a,b=prose.txt",
            "wanbench: prose.txt: expected output of ping (with `time=... ms`) or the JSON of `iperf3 -J`, got neither",
        ),
        (
            "a,b=iperf.json a,c=p.txt",
            "wanbench: b,c: no path between these sites; add b,c=FILE or c,b=FILE, with output of ping",
        ),
        ("a,b=failed.json", "wanbench: failed.json: iperf3 failed: unable to connect to server"),
        (
            "a,b=other.json",
            "wanbench: other.json: not a report of iperf3; expected the JSON of `iperf3 -c HOST -J`",
        ),
        (
            "a,b=deep.json",
            "wanbench: deep.json: not a report of iperf3; expected the JSON of `iperf3 -c HOST -J`",
        ),
        (
            "a,b=endless.json",
            "wanbench: endless.json: not a report of iperf3; expected the JSON of `iperf3 -c HOST -J`",
        ),
    ],
)
def test_unusable_input_is_reported_in_one_line_and_nothing_is_written(tmp_path, source, line):
    (tmp_path / "iperf.json").write_text(IPERF)
    (tmp_path / "p.txt").write_text(PING)
    (tmp_path / "prose.txt").write_text("it was fast")
    (tmp_path / "failed.json").write_text('{"error": "unable to connect to server"}')
    (tmp_path / "other.json").write_text('{"end": []}')
    (tmp_path / "deep.json").write_text('{"a":' * 100_000)
    (tmp_path / "endless.json").write_text(IPERF.replace('"timesecs": 0', '"timesecs": 1e999'))
    assert refused("measure", *source.split(), "-o", "mine.toml") == line
    assert not (tmp_path / "mine.toml").exists()


def test_a_byte_order_mark_is_skipped(measured):
    assert measured({"i": f"\ufeff{IPERF}"}, "home,london=i").path("home", "london").rate.mbit == 940


def test_an_existing_profile_is_not_changed(tmp_path):
    (tmp_path / "mine.toml").write_text("mine")
    line = refused("measure", "a,b=x", "-o", "mine.toml")
    assert line == "wanbench: mine.toml: already exists; choose another name"


def test_a_stated_rate_of_a_site_is_given(measured):
    profile = measured({}, "--site", "home=up:400Mbit", "--site", "tokyo=up:2Gbit", "--site", "home=down:1Gbit")
    home = profile.site("home")
    assert (home.up.mbit, home.down.mbit, profile.site("tokyo").up.mbit) == (400, 1000, 2000)
    assert home.provenance["up"] == Provenance("given", "mine.toml")
    assert profile.site("london").up is None


@pytest.mark.parametrize(
    ("site", "where", "what"),
    [
        ("home", "wanbench: --site home: expected ", "SITE=up:RATE"),
        ("=up:1Mbit", "wanbench: --site =up:1Mbit: expected ", "SITE=up:RATE"),
        ("home=sideways:1Mbit", "wanbench: --site home=sideways:1Mbit: expected ", "SITE=up:RATE"),
        ("home=up:1MB", "wanbench: --site home=up:1MB: ", "'8Mbit'"),
        ("mars=up:1Mbit", "wanbench: mars: ", "home, london"),
        ("home=up:1Mbit,up:2Mbit", "wanbench: --site home=up:1Mbit,up:2Mbit: ", "up of home is stated twice; keep one"),
    ],
)
def test_an_impossible_site_is_refused(tmp_path, site, where, what):
    (tmp_path / "p").write_text(PING)
    line = refused("measure", "home,london=p", "--site", site, "-o", "mine.toml")
    assert line.startswith(where)
    assert what in line


def test_a_rate_of_a_site_is_stated_once(tmp_path):
    line = refused("measure", "a,b=p", "--site", "a=up:1Mbit", "--site", "a=up:2Mbit", "-o", "mine.toml")
    assert line == "wanbench: --site a=up:2Mbit: up of a is stated twice; keep one"


def test_paths_that_are_slower_at_once_share_the_up_rate_of_their_site(measured):
    profile = measured({name: json.dumps(output) for name, output in RECORDED.items()}, *ALONE_AND_AT_ONCE)
    home = profile.site("home")
    assert home.up.mbit == pytest.approx(20, rel=0.1)
    assert profile.path("home", "tokyo").rate.mbit == pytest.approx(20, rel=0.1)
    assert home.provenance["up"].kind == "measured"
    assert "iperf3, 2 flows, 3 s, l2, " in home.provenance["up"].source
    assert home.down is None


def test_towards_the_site_they_share_its_down_rate(measured):
    rates = {"l": 80, "t": 60, "l2": 50, "t2": 49}
    hosts = {"l": "london", "t": "tokyo"}
    outputs = {name: iperf3(rate, hosts[name[0]], back=True) for name, rate in rates.items()}
    home = measured(outputs, *ALONE_AND_AT_ONCE).site("home")
    assert (home.up, home.down.mbit) == (None, 99)


def outputs_at_once(mbps, begun_s=0, flows=1):
    return {
        "l": iperf3(50),
        "t": iperf3(50, "tokyo"),
        "l2": iperf3(mbps / 2),
        "t2": iperf3(mbps / 2, "tokyo", flows, begun_s),
    }


@pytest.mark.parametrize(("mbps", "up"), [(89, 89), (91, None), (102, None)])
def test_a_link_is_shared_if_more_than_a_tenth_of_the_rate_is_missing(measured, mbps, up):
    home = measured(outputs_at_once(mbps), *ALONE_AND_AT_ONCE).site("home")
    assert (home.up and home.up.mbit) == up


def test_a_profile_says_that_no_shared_link_was_seen(measured):
    (note,) = measured(outputs_at_once(98), *ALONE_AND_AT_ONCE).notes
    today = date.today()
    assert note == (
        "home, up: no shared link was seen; 2 paths reached 98 Mbit/s at once and 100 Mbit/s alone "
        f"(iperf3, one flow, 10 s, l2, {today}; iperf3, one flow, 10 s, t2, {today})."
    )


def test_a_stated_rate_replaces_the_measured_one_which_becomes_a_note(measured):
    profile = measured(outputs_at_once(50), *ALONE_AND_AT_ONCE, "--site", "home=up:60Mbit")
    assert profile.site("home").up.mbit == 60
    assert profile.notes[0].startswith("home, up: the rate is stated; 2 paths reached 50 Mbit/s at once ")


@pytest.mark.parametrize(
    ("outputs", "sources", "line"),
    [
        ({}, ("home=l2",), "wanbench: home, up: one host was measured at once; expected two or more"),
        (
            {"t2": iperf3(50, "oslo")},
            ("home=l2", "home=t2"),
            "wanbench: home, up: oslo:5201 was measured at once, but not alone; add a measurement alone",
        ),
        (
            outputs_at_once(50, flows=8),
            ("home=l2", "home=t2"),
            "wanbench: home, up: 1 and 8 flows; expected the same `iperf3 -P` alone and at once",
        ),
        (
            outputs_at_once(50, begun_s=60),
            ("home=l2", "home=t2"),
            "wanbench: home, up: the measurements at once began 60 s apart; expected 2 s at most",
        ),
        ({}, ("oslo=l2", "oslo=t2"), "wanbench: oslo: no path of this site is measured; sites: home, london, tokyo"),
    ],
)
def test_rates_that_do_not_show_a_shared_link_are_refused(tmp_path, outputs, sources, line):
    for name, text in {"p": PING, **outputs_at_once(50), **outputs}.items():
        (tmp_path / name).write_text(text)
    assert refused("measure", *PINGS, "home,london=l", "home,tokyo=t", *sources, "-o", "mine.toml") == line


def test_rates_in_both_directions_are_two_paths(measured):
    outputs = {"there": iperf3(10), "back": iperf3(100, back=True)}
    profile = measured(outputs, "home,london=there", "home,london=back")
    assert profile.path("home", "london").rate.mbit == 10
    assert profile.path("london", "home").rate.mbit == 100
    assert profile.rtt("home", "london").ms == 85
    assert profile.path("london", "home").provenance["rate"].source.startswith("iperf3 -R, one flow, ")


def test_a_profile_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "p").write_text(PING)
    line = refused("measure", "a,b=p", "-o", "nowhere/mine.toml", code=3)
    assert line == "wanbench: nowhere/mine.toml: cannot be written: No such file or directory"
