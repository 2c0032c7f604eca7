"""`measure`: turn the output of ping and iperf3 into a profile with sources."""

import json
import os
from datetime import UTC, date, datetime

import pytest
from command_line import as_it_was, refused, wanbench  # noqa: F401

from wanbench.harness.measure import read
from wanbench.netprofiles import load

DAY = date(2026, 11, 21)
TIMES = (84.9, 85.0, 85.1, 85.2, 85.0, 84.8, 85.3, 85.0, 85.1, 84.9, 120.0)
PING = (
    "PING 203.0.113.7 (203.0.113.7) 56(84) bytes of data.\n"
    + "".join(f"64 bytes from 203.0.113.7: icmp_seq={n} ttl=52 time={t} ms\n" for n, t in enumerate(TIMES, 1))
    + "\n--- 203.0.113.7 ping statistics ---\n"
    "12 packets transmitted, 11 received, 8.33333% packet loss, time 2405ms\n"
    "rtt min/avg/max/mdev = 84.800/88.209/120.000/10.05 ms\n"
)
IPERF = json.dumps(
    {
        "start": {"connected": [{}]},
        "end": {
            "sum_sent": {"bits_per_second": 9.6e8, "seconds": 10.0},
            "sum_received": {"bits_per_second": 9.4e8, "seconds": 10.04},
        },
    }
)


def test_one_late_answer_changes_neither_the_round_trip_nor_the_jitter():
    reading = read(PING, "ping.txt", DAY)
    assert reading.rtt_ms == 85.0
    assert reading.jitter_ms == pytest.approx(0.11, abs=0.04)
    assert reading.loss_pct == pytest.approx(8.3333)
    assert reading.source == "ping, 11 of 12 answers, ping.txt, 2026-11-21"


def test_without_a_lost_packet_no_loss_is_written():
    assert read(PING.replace("12 packets transmitted", "11 packets transmitted"), "x", DAY).loss_pct is None


def test_the_rate_is_that_of_the_receiver():
    reading = read(IPERF, "iperf.json", DAY)
    assert reading.rate_mbps == 940
    assert reading.source == "iperf3, one flow, 10 s, iperf.json, 2026-11-21"


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


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("london", "wanbench: london: expected SRC,DST=FILE or SRC,DST@HOST, e.g. home,london=ping.txt"),
        ("a,b=", "wanbench: a,b=: expected SRC,DST=FILE or SRC,DST@HOST, e.g. home,london=ping.txt"),
        ("a,b=none.txt", "wanbench: none.txt: cannot be read: No such file or directory"),
        ("a,b=iperf.json", "wanbench: a,b: no round-trip time; add output of ping"),
        (
            "a,b=prose.txt",
            "wanbench: prose.txt: expected output of ping (with `time=... ms`) or JSON of iperf3, got neither",
        ),
        ("a,b=failed.json", "wanbench: failed.json: iperf3 failed: unable to connect to server"),
        (
            "a,b=other.json",
            "wanbench: other.json: not a report of iperf3; expected the JSON of `iperf3 -c HOST -J`",
        ),
    ],
)
def test_unusable_input_is_reported_in_one_line_and_nothing_is_written(tmp_path, source, line):
    (tmp_path / "iperf.json").write_text(IPERF)
    (tmp_path / "prose.txt").write_text("it was fast")
    (tmp_path / "failed.json").write_text('{"error": "unable to connect to server"}')
    (tmp_path / "other.json").write_text('{"end": []}')
    assert refused("measure", source, "-o", "mine.toml") == line
    assert not (tmp_path / "mine.toml").exists()


def test_an_existing_profile_is_not_changed(tmp_path):
    (tmp_path / "mine.toml").write_text("mine")
    line = refused("measure", "a,b=x", "-o", "mine.toml")
    assert line == "wanbench: mine.toml: already exists; choose another name"
