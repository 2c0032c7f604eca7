"""Recordings of other tools become traces that a timeline can read, and keep their bytes, delays and losses."""

import json
import shlex

import pytest

from wanbench.harness.errors import SpecError
from wanbench.harness.spec.timeline import read_trace
from wanbench.harness.timeline.convert import convert


def column(made, name):
    return [point.get(name) for point in made.points]


def refusal(text, **how):
    with pytest.raises(SpecError) as refused:
        convert(text, "f", **how)
    return str(refused.value)


# ---------------------------------------------------------------- mahimahi


def test_a_mahimahi_trace_keeps_its_bytes():
    times = [0, 0, 3, 3, 3, 400, 999, 1000, 1001, 1500, 2250]
    made = convert("\n".join(map(str, times)), "f", every_s=0.5)
    lengths = [0.5, 0.5, 0.5, 0.75]  # the last step takes the rest
    assert column(made, "time_s") == [0, 0.5, 1, 1.5]
    megabits = sum(rate * length for rate, length in zip(column(made, "rate_mbps"), lengths, strict=True))
    assert megabits == pytest.approx(len(times) * 1500 * 8 / 1e6)


def test_a_packet_of_mahimahi_leaves_at_the_end_of_its_millisecond():
    # At 1000 ms the packet is the last of the first second; at 0 ms it is the last of the trace, which repeats.
    assert column(convert("1000\n1001\n2000\n", "f"), "rate_mbps") == [0.012, 0.024]
    assert column(convert("0\n1000\n2000\n", "f"), "rate_mbps") == [0.012, 0.024]


def test_a_silent_step_is_an_outage_and_the_others_lose_nothing():
    made = convert("500\n3000\n", "f")
    assert made.points == [
        {"time_s": 0, "rate_mbps": 0.012, "loss_pct": 0},
        {"time_s": 1, "loss_pct": 100},
        {"time_s": 2, "rate_mbps": 0.012, "loss_pct": 0},
    ]
    assert made.remarks == (
        "f: mahimahi, 3 s, 3 lines of 1 s",
        "in 1 of them nothing passes, so every packet is lost; a longer --every averages over such gaps",
    )


def test_the_recorded_loss_holds_around_an_outage():
    header = "time_s,rate_mbps,loss_pct\n"
    made = convert(f"{header}0,5,4\n2,5,4\n4,0,4\n6,5,4\n", "f")
    assert column(made, "loss_pct") == [4, 4, 4, 4, 100, 100, 4, 4]
    assert column(convert(f"{header}0,5,\n1,0,7\n2,5,\n", "f"), "loss_pct") == [7, 100, 7]


def test_the_times_of_mahimahi_must_not_decrease():
    assert refusal("3\n2\n") == "f: line 2: expected 3 or more, as in the line before, got 2"
    assert "above 0 ms" in refusal("0\n")


# ---------------------------------------------------------------- iperf3


def interval(start, end, mbps, rtts=(), **more):
    whole = {"start": start, "end": end, "bits_per_second": mbps * 1e6, "omitted": False, **more}
    return {"sum": whole, "streams": [{"rtt": rtt} for rtt in rtts]}


def report(*intervals):
    return json.dumps({"start": {}, "intervals": intervals, "end": {}})


def test_intervals_of_iperf3_are_weighted_by_their_time():
    made = convert(report(interval(0, 0.5, 10), interval(0.5, 1.5, 40), interval(1.5, 2, 20)), "f")
    assert column(made, "rate_mbps") == [25, 30]


def test_the_round_trip_of_iperf3_is_the_median_of_its_streams():
    made = convert(report(interval(0, 1, 10, [20_000, 30_000, 90_000]), interval(1, 2, 10, [0])), "f")
    assert column(made, "rtt_ms") == [30, None]


def test_omitted_intervals_of_iperf3_do_not_count():
    made = convert(report(interval(0, 2, 99, omitted=True), interval(2, 3, 5), interval(3, 4, 6)), "f")
    assert made.points == [{"time_s": 0, "rate_mbps": 5}, {"time_s": 1, "rate_mbps": 6}]


def test_the_loss_of_udp_is_taken_from_its_receiver():
    received = {"packets": 80, "lost_packets": 2, "lost_percent": 2.5, "sender": False}
    assert convert(report(interval(0, 1, 10, **received)), "f").points == [
        {"time_s": 0, "rate_mbps": 10, "loss_pct": 2.5}
    ]
    sent = report(interval(0, 1, 100, packets=800, sender=True))
    assert refusal(sent) == "f: UDP as it was sent, not as it arrived; record with `iperf3 -u -R`"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"error": "unable to connect", "intervals": []}', "iperf3 failed: unable to connect"),
        ('{"intervals": []}', "iperf3 reported no interval; measure for longer"),
        ('{"a": 1}', "not a report of iperf3; expected the JSON of `iperf3 -c HOST -J`"),
        ("{", "not a report of iperf3; expected the JSON of `iperf3 -c HOST -J`"),
    ],
)
def test_json_that_is_no_report_is_refused(text, reason):
    assert refusal(text) == f"f: {reason}"


@pytest.mark.parametrize("value", ["-5", "NaN", "Infinity", "1e999"])
@pytest.mark.parametrize("key", ["start", "end", "bits_per_second", "lost_percent", "rtt"])
def test_a_number_below_0_or_without_end_is_refused_with_its_interval(key, value):
    values = {"start": 1, "end": 2, "bits_per_second": 3, "lost_percent": 0, "rtt": 9, key: "VALUE"}
    wrong = {"sum": values, "streams": [{"rtt": values.pop("rtt")}]}
    text = report(interval(0, 1, 10), wrong).replace('"VALUE"', value)
    assert refusal(text).startswith(f"f: interval 2: {key}: expected a finite number of 0 or more, got ")


# ---------------------------------------------------------------- ping


def answers(*pings, stamped=0.0):
    """The lines of ping for answers (icmp_seq, ms), one sent every `stamped` seconds."""
    stamps = [f"[{1_700_000_000 + number * stamped:.6f}] " if stamped else "" for number, _ in pings]
    lines = [
        f"{stamp}64 bytes from 192.0.2.1: icmp_seq={number % 65536} ttl=52 time={ms} ms"
        for stamp, (number, ms) in zip(stamps, pings, strict=True)
    ]
    return "\n".join(["PING 192.0.2.1 (192.0.2.1) 56(84) bytes of data.", *lines, ""])


def statistics(sent, received, ms):
    lost = f"{100 - 100 * received / sent:g}% packet loss"
    return f"--- 192.0.2.1 ping statistics ---\n{sent} packets transmitted, {received} received, {lost}, time {ms}ms\n"


def test_a_step_has_the_median_round_trip_and_the_share_of_lost_pings():
    made = convert(answers((1, 80), (2, 81), (3, 300), (4, 90), (6, 92), stamped=0.5), "f", every_s=1.5)
    assert made.points == [
        {"time_s": 0, "rtt_ms": 81, "loss_pct": 0},
        {"time_s": 1.5, "rtt_ms": 91, "loss_pct": pytest.approx(100 * (1 - (2 / 3) ** 0.5), abs=1e-6)},
    ]
    assert made.remarks == (
        "f: one ping per 0.5 s, 3 s, 2 lines of 1.5 s",
        "5 of 6 answers, 16.67 % of round trips lost is 8.713 % each way, without statistics",
    )


def test_pings_lost_at_both_ends_count_if_ping_has_counted_them():
    assert column(convert(answers((2, 80), (3, 80)), "f"), "loss_pct") == [0, 0]
    made = convert(answers((2, 80), (3, 80)) + statistics(4, 2, 3000), "f")
    assert column(made, "loss_pct") == [100, 0, 0, 100]
    assert column(made, "rtt_ms") == [None, 80, 80, None]


def test_without_stamps_the_statistics_give_the_interval():
    made = convert(answers(*((n, 80) for n in range(1, 12))) + statistics(11, 11, 2000), "f")
    assert made.remarks[0] == "f: one ping per 0.2 s, 2.2 s, 2 lines of 1 s"


def test_an_interval_that_the_log_does_not_give_is_assumed():
    made = convert(answers((1, 80), (2, 80)), "f")
    assert made.remarks[0] == "f: one ping per 1 s (assumed; record with -D), 2 s, 2 lines of 1 s"


def test_two_runs_of_ping_are_refused():
    assert refusal(answers((1, 80)) + answers((1, 90))) == (
        "f: line 3: ping begins again, or another host answers; expected one run to one host, so give each its own file"
    )


def test_a_duplicate_counts_once_and_the_counter_of_ping_starts_again():
    text = answers((65534, 80), (65535, 80), (65535, 500), (65537, 82), stamped=1)
    made = convert(text.replace("time=500 ms", "time=500 ms (DUP!)"), "f")
    assert column(made, "rtt_ms") == [80, 80, None, 82]
    assert column(made, "loss_pct") == [0, 0, 100, 0]


# ---------------------------------------------------------------- CSV

LOG = (
    "Timestamp,DL_bitrate,PINGAVG\n"
    "2019.12.16_13.59.59,8000,-\n"
    "2019.12.16_13.59.59,12000,40\n"
    "2019.12.16_14.00.01,40000,-\n"
)


def test_columns_of_any_csv_file_are_taken_with_their_units():
    made = convert(LOG, "f", columns="time_s=Timestamp,rate_mbps=DL_bitrate:kbps,rtt_ms=PINGAVG")
    assert made.points == [
        {"time_s": 0, "rate_mbps": 10, "rtt_ms": 40},  # two values of one second: their mean, until the next
        {"time_s": 1, "rate_mbps": 10},
        {"time_s": 2, "rate_mbps": 40},
        {"time_s": 3, "rate_mbps": 40},
    ]


def test_dates_and_fractions_of_seconds_are_read():
    text = "t,r\n2024-05-27T15:12:28.250000,5\n2024-05-27T15:12:28.750000,7\n2024-05-27T15:12:29.250000,9\n"
    assert column(convert(text, "f", every_s=0.5, columns="time_s=t,rate_mbps=r"), "rate_mbps") == [5, 7, 9]


def test_a_trace_of_ours_is_resampled_without_a_map():
    made = convert("time_s,rate_mbps,loss_pct\n0,10,1\n1,20,2\n3,50,3\n", "f", every_s=2)
    assert made.points == [
        {"time_s": 0, "rate_mbps": 15, "loss_pct": 1.5},
        {"time_s": 2, "rate_mbps": pytest.approx(40), "loss_pct": 3},
    ]


def test_bursts_are_not_averaged_with_independent_losses():
    text = "time_s,loss_pct,loss_burst\n0,1,0\n1,1,4\n1,1,0\n2,1,0\n3,1,0\n"
    assert column(convert(text, "f", every_s=2), "loss_burst") == [4, 0]
    assert column(convert(text, "f"), "loss_burst") == [0, 4, 0, 0]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (
            "time_s=Timestamp,rate_mbps=DL",
            "--columns: rate_mbps: no column 'DL' in the file; it has Timestamp, DL_bitrate, PINGAVG",
        ),
        ("time_s=Timestamp", "--columns: expected time_s and at least one of"),
        ("time_s=Timestamp,speed=DL_bitrate", "--columns: 'speed': expected one of time_s,"),
        (
            "time_s=Timestamp,rate_mbps=DL_bitrate:kB",
            "--columns: rate_mbps: unknown unit 'kB'; expected one of bit, kbit, Mbit, Gbit",
        ),
        ("time_s=DL_bitrate,rtt_ms=PINGAVG", "no line has a value of"),
        ("time_s=PINGAVG,rate_mbps=DL_bitrate", "line 2: time_s: expected a number or a date and time, got '-'"),
        ("time_s=DL_bitrate,rtt_ms=Timestamp", "line 2: rtt_ms: expected a number, got '2019.12.16_13.59.59'"),
    ],
)
def test_a_wrong_map_is_refused(columns, reason):
    text = LOG.replace(",40\n", ",-\n") if "no line" in reason else LOG
    assert refusal(text, columns=columns).startswith(f"f: {reason}")


@pytest.mark.parametrize(("line", "cells"), [("2", 1), ("2,", 2), ("2,5,1,1", 4)])
def test_a_line_with_more_or_fewer_cells_is_refused(line, cells):
    text = f"time_s,rate_mbps,n\n1,5,1\n{line}\n"
    assert refusal(text) == f"f: line 3: {cells} cells; expected 3, as in line 1"


def test_a_column_that_is_there_twice_is_refused_if_it_is_taken():
    reason = "f: two columns for rate_mbps; name one, and rename columns of the same name"
    assert refusal("time_s,rate_mbps,rate_mbps\n0,5,6\n") == reason
    assert refusal("t,a,b\n0,5,6\n", columns="time_s=t,rate_mbps=a,rate_mbps=b") == reason
    assert column(convert("t,a,n,n\n0,5,6,7\n", "f", columns="time_s=t,rate_mbps=a"), "rate_mbps") == [5]


@pytest.mark.parametrize("columns", [None, "time_s=time_s,rate_mbps=rate_mbps"])
@pytest.mark.parametrize(("mark", "text"), [(";", "time_s;rate_mbps\n0;5,5\n"), ("|", "| time_s | rate_mbps |\n")])
def test_cells_that_other_marks_separate_are_refused(mark, text, columns):
    assert refusal(text, columns=columns) == (
        f"f: line 1: cells are separated by {mark!r}; expected ',' between cells, '.' before decimals and nothing "
        "between thousands"
    )


@pytest.mark.parametrize(("value", "mark"), [("5,5", ","), ("1'000", "'"), ("1 000", " ")])
def test_a_number_with_a_separator_is_refused_by_its_name(value, mark):
    assert refusal(f"time_s\trate_mbps\n0\t{value}\n") == (
        f"f: line 2: rate_mbps: expected a number, got {value!r}; {mark!r} separates digits, expected '.' before "
        "decimals and nothing between thousands"
    )


@pytest.mark.parametrize(
    "text", ["0.5 4.03\n1.0 3.1\n", "  0.5   4.03  \n 1.0 3.1\n", "# s Mbit/s\n0.5\t4.03\n1.0\t3.1\n"]
)
def test_columns_of_a_table_without_header_are_named_by_number(text):
    made = convert(text, "f", every_s=0.5, columns="time_s=1,rate_mbps=2")
    assert column(made, "rate_mbps") == [4.03, 3.1]


def test_columns_without_names_show_how_to_name_them():
    assert refusal("0.5 4\n", columns="1,2").endswith(", as in time_s=1,rate_mbps=2")
    assert "time_s=1,rate_mbps=2 if it has no header" in refusal("0.5 4.03\n1.0 3.1\n")


# ---------------------------------------------------------------- doubtful values


LOST_AS_ZERO = "tx,rtt\n0,80000\n1,0.0\n2,90000\n3,0\n4,nan\n"


def test_zeros_are_round_trips_with_a_remark_or_lost_packets_with_lost():
    made = convert(LOST_AS_ZERO, "f", columns="time_s=tx,rtt_ms=rtt:us")
    assert column(made, "rtt_ms") == [80, 0, 90, 0]
    assert made.remarks[1:] == (
        "rtt_ms: 1 of 5 values are '0.0'; if they are lost packets, add --lost 0.0",
        "rtt_ms: 1 of 5 values are '0'; if they are lost packets, add --lost 0",
        "rtt_ms: 1 of 5 values are 'nan'; if they are lost packets, add --lost nan",
    )
    made = convert(LOST_AS_ZERO, "f", columns="time_s=tx,rtt_ms=rtt:us", lost=["0", "NaN"])
    assert column(made, "rtt_ms") == [80, None, 90, None, None]
    assert column(made, "loss_pct") == [0, 100, 0, 100, 100]
    assert len(made.remarks) == 1


def test_a_lost_round_trip_of_a_table_counts_each_way_and_a_lost_packet_one_way_counts_once():
    text = "t,d\n0,80\n1,-1\n2,80\n3,80\n4,80\n"
    made = convert(text, "f", every_s=5, columns="time_s=t,rtt_ms=d", lost=["-1"])
    assert made.points[0]["loss_pct"] == pytest.approx(100 * (1 - 0.8**0.5), abs=1e-6)
    assert convert(text, "f", every_s=5, columns="time_s=t,one_way_ms=d", lost=["-1"]).points[0]["loss_pct"] == 20


@pytest.mark.parametrize("word", ["timeout", "*", "-1", "XXXX"])
def test_a_word_in_place_of_a_round_trip_is_refused_with_what_to_add(word):
    text = f"t,rtt\n0,80\n1,{word}\n"
    line = refusal(text, columns="time_s=t,rtt_ms=rtt")
    assert line.startswith("f: line 3: rtt_ms: expected a")
    assert line.endswith(f"; if it stands for a lost packet, add --lost {shlex.quote(word)}")
    assert column(convert(text, "f", columns="time_s=t,rtt_ms=rtt", lost=[word]), "loss_pct") == [0, 100]


def test_characters_that_cannot_be_printed_are_not_what_to_add():
    line = refusal("t,rtt\n0,80\n1,\x0080\n", columns="time_s=t,rtt_ms=rtt")
    assert line == "f: line 3: rtt_ms: expected a number, got '\\x0080'"


@pytest.mark.parametrize("columns", ["time_s=t,rate_mbps=r", "time_s=t,rtt_ms=r,loss_pct=l"])
def test_lost_needs_a_delay_and_no_loss(columns):
    assert refusal("t,r,l\n0,1,0\n", columns=columns, lost=["0"]).startswith(
        "f: --lost: it is for values of rtt_ms or "
    )
    assert refusal("500\n", lost=["0"]) == "f: --lost: it is for a table; name its columns with --columns"


@pytest.mark.parametrize(
    "times",
    [
        ("2026-03-29T01:59:58+01:00", "2026-03-29T01:59:59+01:00", "2026-03-29T03:00:00+02:00"),
        ("2026-03-29 00:59:58Z", "2026-03-29 01:59:59 +01", "2026-03-28 20:00:00.0-0500"),
    ],
)
def test_times_with_an_offset_go_on_through_the_change_to_summer_time(times):
    text = "t,rtt\n" + "".join(f"{time},{80 + number}\n" for number, time in enumerate(times))
    made = convert(text, "f", columns="time_s=t,rtt_ms=rtt")
    assert made.points == [{"time_s": number, "rtt_ms": 80 + number} for number in range(3)]


@pytest.mark.parametrize(
    "time", ["2026-03-29 01:59:58 CEST", "29/03/2026 01:59:58", "2026-13-29 01:59:58", "01:59:58 PM"]
)
def test_a_time_whose_zone_or_order_is_unknown_is_refused(time):
    line = refusal(f"t,rtt\n{time},80\n", columns="time_s=t,rtt_ms=rtt")
    assert line.startswith(f"f: line 2: time_s: expected a number or a date and time, got {time!r}")


@pytest.mark.parametrize(
    ("begin", "step", "remark"),
    [
        (1_700_000_000_000, 1000, "time_s: steps of 1000 s; milliseconds? then write time_s=t:ms"),
        (0, 1000, "time_s: steps of 1000 s; milliseconds? then write time_s=t:ms"),
        (1_700_000_000, 300, None),
        (0, 1, None),
    ],
)
def test_times_that_are_hardly_seconds_get_a_remark(begin, step, remark):
    text = "t,rtt\n" + "".join(f"{begin + number * step},80\n" for number in range(3))
    remarks = convert(text, "f", every_s=step * 3 / 4, columns="time_s=t,rtt_ms=rtt").remarks[1:]
    assert remarks == ((remark,) if remark else ())
    if remark:
        unit = remark.rpartition(":")[2]
        assert not convert(text, "f", columns=f"time_s=t:{unit},rtt_ms=rtt").remarks[1:]


@pytest.mark.parametrize("value", ["-5", "inf", "-inf", "1e400"])
def test_a_value_below_0_or_without_end_is_refused_with_its_line(value):
    got = f"rate_mbps: expected a finite number of 0 or more, got {value!r}"
    assert refusal(f"time_s,rate_mbps\n0,5\n1,{value}\n") == f"f: line 3: {got}"


def test_lines_out_of_order_are_refused():
    assert refusal("time_s,rtt_ms\n5,1\n4,1\n").startswith("f: line 3: ")


@pytest.mark.parametrize(("unit", "units"), [("us", "microseconds"), ("ns", "nanoseconds")])
def test_times_beyond_the_longest_trace_are_refused_with_their_likely_unit(unit, units):
    second = {"us": 10**6, "ns": 10**9}[unit]
    text = f"t,rtt\n{1_700_000_000 * second},80\n{1_700_000_001 * second},81\n{1_700_000_002 * second},82\n"
    line = refusal(text, columns="time_s=t,rtt_ms=rtt")
    assert line == f"f: time_s: steps of {second:g} s; {units}? then write time_s=t:{unit}"
    assert column(convert(text, "f", columns=f"time_s=t:{unit},rtt_ms=rtt"), "rtt_ms") == [80, 81, 82]


# ---------------------------------------------------------------- all of them


def test_a_long_recording_gets_longer_steps_and_a_short_step_is_refused():
    text = "time_s,rtt_ms\n0,80\n5000,90\n"
    assert convert(text, "f").remarks == ("f: table, 10000 s, 2 lines of 5 s",)
    assert refusal(text, every_s=1) == "f: --every 1s makes 10000 steps; expected at most 2000, e.g. 5s"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("time_s,rtt_ms\ninf,1\n", "line 2: time_s: expected a number or a date and time, got 'inf'"),
        ("time_s,rtt_ms\n1e400,1\n", "line 2: time_s: expected a number or a date and time, got '1e400'"),
        (
            'time_s,rtt_ms\n0,"1\n' + "9" * 131_073,
            "line 3: field larger than field limit (131072); is a quote not closed?",
        ),
        ('{"a":' * 100_000, "not a report of iperf3; expected the JSON of `iperf3 -c HOST -J`"),
        ("9" * 400, "a number is too large; expected a recording of one of the known tools"),
        (f"icmp_seq={'9' * 400} time=1 ms\nicmp_seq=1 time={'9' * 400} ms", "expected a mahimahi trace"),
    ],
    ids=lambda text: text[:30],
)
def test_strange_text_is_refused_in_one_line(text, reason):
    assert refusal(text).startswith(f"f: {reason}")


def test_text_of_no_known_format_is_refused():
    assert refusal("it was fast\n") == (
        "f: expected a mahimahi trace, JSON of iperf3, output of ping, or a table; for a table, add --columns "
        "time_s=NAME,rate_mbps=NAME, or time_s=1,rate_mbps=2 if it has no header"
    )
    assert "expected a mahimahi trace" in refusal("")


def test_a_value_that_a_trace_cannot_have_is_refused():
    assert "loss_pct" in refusal("time_s,loss_pct\n0,101\n")


@pytest.mark.parametrize(
    "text",
    ["500\n3000\n3001\n", report(interval(0, 1, 12.3456, [20_111])), answers((1, 80.123), (4, 81)), LOG],
    ids=["mahimahi", "iperf3", "ping", "csv"],
)
def test_a_timeline_reads_what_is_written(tmp_path, text):
    made = convert(text, "f", columns="time_s=Timestamp,rate_mbps=DL_bitrate:kbps" if text is LOG else None)
    (tmp_path / "made.csv").write_text(made.to_csv())
    lines = read_trace(tmp_path / "made.csv", "timeline.0.trace")
    assert [line["time_s"] for line in lines] == column(made, "time_s")
    assert all(
        line[name] == value for line, point in zip(lines, made.points, strict=True) for name, value in point.items()
    )
