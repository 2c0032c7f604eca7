"""Convert a recording of another tool to a trace: mahimahi, `iperf3 --json`, ping, or any CSV file. Pure.

A recording is read as samples, values that hold for a while, and then resampled to steps of equal length: the rate of a
step is the mean over its time, so that bytes are kept. A delay is the median of the samples that begin in the step, and
a loss is their mean. A length of bursts is the mean of those above 0. A step that passes nothing is an outage: a trace
has no rate of 0, so its loss is 100 %.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from wanbench.harness.errors import SpecError
from wanbench.harness.spec.trace import COUNTS, LEAST_MBPS, MOST_LINES, TIME, TRACED, VALUES, Point, check_points
from wanbench.netprofiles import Delay, Rate, UnitError
from wanbench.netprofiles.errors import did_you_mean

_RATE, _RTT, _LOSS = "rate_mbps", "rtt_ms", "loss_pct"
_PACKET_MBPS = 1500 * 8 / 1000  # one packet of mahimahi per millisecond
_ANSWER = re.compile(r"^(?:\[(\d+\.\d+)\] )?.*\b(?:icmp_)?seq=(\d+)\b.*\btime[=<](\d+(?:\.\d+)?) ?ms", re.MULTILINE)
_COUNTS = re.compile(r"(\d+) packets transmitted.*?(?:time (\d+)ms)?$", re.MULTILINE)
_MOST_PINGS = 1_000_000  # 28 hours at ten a second
_SEQUENCES = 1 << 16  # ping counts modulo this
_NO_VALUE = {"", "-", "na", "nan", "null", "none"}


@dataclass(frozen=True, slots=True)
class Sample:
    """A value that holds from `begin_s` to `end_s`."""

    begin_s: float
    end_s: float
    value: float


Samples = Mapping[str, Sequence[Sample]]
"""The samples of each column of a trace."""


@dataclass(frozen=True)
class Converted:
    """A trace that was made from a recording.

    Attributes:
        points: its lines.
        remarks: what a user must know about it, as readable lines.
    """

    points: list[Point]
    remarks: tuple[str, ...]

    def to_csv(self) -> str:
        """Return the file."""
        names = [name for name in (TIME, *VALUES) if any(name in point for point in self.points)]
        lines = [",".join(f"{point[name]:.12g}" if name in point else "" for name in names) for point in self.points]
        return "\n".join([",".join(names), *lines, ""])


def convert(text: str, name: str, every_s: float | None = None, columns: str | None = None) -> Converted:
    """Convert the text of a recording; its format is recognised.

    Args:
        name: name of the file, for messages.
        every_s: length of a step. Default: 1 s, or more if the trace would have too many lines.
        columns: columns of a CSV file, such as `time_s=Timestamp,rate_mbps=DL_bitrate:kbps`.

    Raises:
        SpecError: the text has no known format, or values that a trace cannot have.
    """
    try:
        tool, samples = _read(text, columns)
        length_s = max(sample.end_s for each in samples.values() for sample in each)
        step_s = every_s or max(1, math.ceil(length_s / MOST_LINES))
        steps = max(1, math.floor(length_s / step_s + 1e-9))
        if steps > MOST_LINES:
            least = math.ceil(length_s / MOST_LINES)
            raise ValueError(f"--every {step_s:g}s makes {steps} steps; expected at most {MOST_LINES}, e.g. {least}s")
        points = _resampled(samples, step_s, steps)
        outages = _without_zero_rates(points)
        check_points(points)
    except csv.Error as error:
        raise SpecError(f"{name}: {error}; is a quote not closed?") from None
    except OverflowError:
        raise SpecError(f"{name}: a number is too large; expected a recording of one of the known tools") from None
    except ValueError as error:
        raise SpecError(f"{name}: {error}") from None
    remarks = [f"{name}: {tool}, {length_s:g} s, {len(points)} lines of {step_s:g} s"]
    if outages:
        remarks.append(
            f"in {outages} of them nothing passes, so every packet is lost; a longer --every averages over such gaps"
        )
    return Converted(points, tuple(remarks))


def _read(text: str, columns: str | None) -> tuple[str, Samples]:
    if columns is not None:
        return "CSV", _csv(text, columns)
    if text.lstrip().startswith("{"):
        return "iperf3", _iperf3(text)
    if _ANSWER.search(text):
        return _ping(text)
    lines = text.split()
    if lines and all(line.isascii() and line.isdecimal() for line in lines):
        return "mahimahi", _mahimahi([int(line) for line in lines])
    if TIME in text.partition("\n")[0]:
        return "CSV", _csv(text, None)
    raise ValueError(
        "expected a mahimahi trace, JSON of iperf3, output of ping, or CSV; for CSV, add --columns "
        "time_s=NAME,rate_mbps=NAME"
    )


def _mahimahi(times_ms: Sequence[int]) -> Samples:
    for number, (before, after) in enumerate(pairwise(times_ms), 2):
        if after < before:
            raise ValueError(f"line {number}: expected {before} or more, as in the line before, got {after}")
    if not times_ms[-1]:
        raise ValueError("expected a last time above 0 ms, which is the length of the trace")
    samples, end_ms = [], 0
    # The packets of a millisecond leave at its end. The trace repeats, so a time of 0 is the end of the last one.
    for time_ms, packets in sorted(Counter(time_ms or times_ms[-1] for time_ms in times_ms).items()):
        samples.append(Sample(end_ms / 1000, (time_ms - 1) / 1000, 0.0))
        samples.append(Sample((time_ms - 1) / 1000, time_ms / 1000, packets * _PACKET_MBPS))
        end_ms = time_ms
    return {_RATE: samples}


def _iperf3(text: str) -> Samples:
    samples: dict[str, list[Sample]] = defaultdict(list)
    try:
        data: dict[str, Any] = json.loads(text)
        if "error" in data and not data.get("intervals"):
            raise ValueError(f"iperf3 failed: {data['error']}")
        kept = [each for each in data["intervals"] if not each["sum"].get("omitted")]
        for number, each in enumerate(kept, 1):
            if "packets" in each["sum"] and "lost_percent" not in each["sum"]:
                raise ValueError("UDP as it was sent, not as it arrived; record with `iperf3 -u -R`")
            keys = ("start", "end", "bits_per_second", *(["lost_percent"] if "lost_percent" in each["sum"] else []))
            values = {key: _number(f"interval {number}: {key}", each["sum"][key]) for key in keys}
            begin_s, end_s = (values[key] - float(kept[0]["sum"]["start"]) for key in ("start", "end"))
            samples[_RATE].append(Sample(begin_s, end_s, values["bits_per_second"] / 1e6))
            if "lost_percent" in values:
                samples[_LOSS].append(Sample(begin_s, end_s, values["lost_percent"]))
            rtts = [_number(f"interval {number}: rtt", flow["rtt"]) for flow in each["streams"] if flow.get("rtt")]
            if rtts:
                samples[_RTT].append(Sample(begin_s, end_s, statistics.median(rtts) / 1000))
    except (KeyError, TypeError, AttributeError, RecursionError, json.JSONDecodeError):
        raise ValueError("not a report of iperf3; expected the JSON of `iperf3 -c HOST --json`") from None
    if not samples:
        raise ValueError("iperf3 reported no interval; measure for longer")
    return samples


def _ping(text: str) -> tuple[str, Samples]:
    """Read the round trips. Pings are sent at equal intervals, so the number of each answer gives its time."""
    headers = [number for number, line in enumerate(text.splitlines(), 1) if line.startswith("PING ")]
    if len(headers) > 1:
        raise ValueError(f"line {headers[1]}: ping begins again; expected one run, so convert each alone")
    rtts: dict[int, tuple[str, float]] = {}
    last = 0
    for stamp, sequence, rtt in _ANSWER.findall(text):
        number = int(sequence) + _SEQUENCES * round((last - int(sequence)) / _SEQUENCES)
        last = max(last, number)
        rtts.setdefault(number, (stamp, float(rtt)))  # a second answer is a duplicate
    first, counts = min(rtts), _COUNTS.search(text)
    interval_s, known = _interval_s(rtts[first][0], rtts[last][0], last - first, counts)
    begin, end = (min(first, 1), min(first, 1) + int(counts[1])) if counts else (first, last + 1)
    end = max(end, last + 1)
    if end - begin > _MOST_PINGS:
        raise ValueError(f"{end - begin} pings were sent; expected at most {_MOST_PINGS}")
    samples: dict[str, list[Sample]] = {_RTT: [], _LOSS: []}
    for number in range(begin, end):
        begin_s, end_s = (number - begin) * interval_s, (number + 1 - begin) * interval_s
        samples[_LOSS].append(Sample(begin_s, end_s, 0.0 if number in rtts else 100.0))
        if number in rtts:
            samples[_RTT].append(Sample(begin_s, end_s, rtts[number][1]))
    return f"one ping per {interval_s:.4g} s{'' if known else ' (assumed; record with -D)'}", samples


def _interval_s(first_stamp: str, last_stamp: str, between: int, counts: re.Match[str] | None) -> tuple[float, bool]:
    """The interval of pings, and if it is known, from the stamps of `-D` or the statistics; else ping's default."""
    if first_stamp and last_stamp and between:
        interval_s = (float(last_stamp) - float(first_stamp)) / between
    elif counts and counts[2] and int(counts[1]) > 1:
        interval_s = int(counts[2]) / 1000 / (int(counts[1]) - 1)
    else:
        return 1.0, False
    if interval_s <= 0:
        raise ValueError("the times of the pings do not grow; expected the output of one run of ping")
    return interval_s, True


def _csv(text: str, columns: str | None) -> Samples:
    reader = csv.DictReader(io.StringIO(text, newline=""), skipinitialspace=True)
    header = [name.strip() for name in reader.fieldnames or []]
    reader.fieldnames = header
    for mark in (";", "\t"):
        if len(header) == 1 and mark in header[0]:
            raise ValueError(f"fields are separated by {mark!r}; expected ',' between fields and '.' in numbers")
    taken = _taken(header, columns)
    found: dict[str, dict[float, list[float]]] = {column: defaultdict(list) for column in taken if column != TIME}
    first, last = 0.0, -math.inf
    for row in reader:
        try:
            if None in row or None in row.values():
                raise ValueError("expected as many fields as in the first line")
            time_s = _time(row[taken[TIME][0]]) * taken[TIME][1]
            if time_s < last:
                raise ValueError("its time is before that of the line before; sort the lines")
            first, last = time_s if last == -math.inf else first, time_s
            for column, values in found.items():
                name, factor = taken[column]
                if row[name].strip().lower() not in _NO_VALUE:
                    values[time_s - first].append(_number(column, row[name], factor))
        except ValueError as error:
            raise ValueError(f"line {reader.line_num}: {error}") from None
    samples = {column: list(_holding(column, values)) for column, values in found.items() if values}
    if not samples:
        raise ValueError(f"no line has a value of {', '.join(found)}")
    return samples


def _number(what: str, text: str | float, factor: float = 1.0) -> float:
    try:
        value = float(text) * factor
    except (ValueError, OverflowError):
        raise ValueError(f"{what}: expected a number, got {text!r}") from None
    if not 0 <= value < math.inf:
        raise ValueError(f"{what}: expected a finite number of 0 or more, got {text!r}")
    return value


def _mean(column: str, values: Sequence[float]) -> float:
    """Return the mean; of lengths of bursts, without 0, which is no burst."""
    return statistics.fmean([value for value in values if value or column not in COUNTS] or [0.0])


def _holding(column: str, values: Mapping[float, Sequence[float]]) -> Iterator[Sample]:
    """Yield one sample per time; it holds until the next, and the last as long as the one before it."""
    times = list(values)
    last_s = times[-1] - times[-2] if len(times) > 1 else 1.0
    for begin_s, end_s in pairwise([*times, times[-1] + last_s]):
        yield Sample(begin_s, end_s, _mean(column, values[begin_s]))


def _taken(header: Sequence[str], columns: str | None) -> dict[str, tuple[str, float]]:
    """Return for each column of the trace its name in the file, and the factor of its unit."""
    pairs = [each.partition("=")[::2] for each in next(csv.reader([columns]), [])] if columns is not None else []
    taken: dict[str, tuple[str, float]] = {}
    for ours, theirs in pairs or [(name, name) for name in header if name in (TIME, *VALUES)]:
        name, _, unit = theirs.partition(":") if theirs not in header else (theirs, "", "")
        if ours.strip() not in (TIME, *VALUES):
            raise ValueError(f"--columns: {ours!r}: expected one of {', '.join((TIME, *VALUES))}")
        if name not in header:
            near = did_you_mean(name, header)
            raise ValueError(f"--columns: {ours}: no column {name!r} in the file; it has {', '.join(header)}{near}")
        if ours.strip() in taken or header.count(name) > 1:
            raise ValueError(f"two columns for {ours.strip()}; name one, and rename columns of the same name")
        taken[ours.strip()] = name, _factor(ours.strip(), unit)
    if TIME not in taken or len(taken) < 2:
        raise ValueError(f"--columns: expected {TIME} and at least one of {', '.join(VALUES)}")
    return taken


def _factor(column: str, unit: str) -> float:
    kind = Delay if column == TIME else TRACED[column].unit
    own = "s" if column == TIME else kind.scale.unit
    try:
        return float(kind.parse(f"1{unit or own}").plain / kind.parse(f"1{own}").plain)
    except UnitError:
        known = ", ".join(kind.scale.units) or own
        raise ValueError(f"--columns: {column}: unknown unit {unit!r}; expected one of {known}") from None


def _time(text: str) -> float:
    """Read a number, or a date and time from the year to the second, however they are separated."""
    with suppress(ValueError):
        if math.isfinite(time_s := float(text)):
            return time_s
    parts = re.findall(r"\d+", text)
    if len(parts) < 6:
        raise ValueError(f"{TIME}: expected a number or a date and time, got {text!r}")
    fraction = float(f"0.{parts[6]}") if len(parts) > 6 and f".{parts[6]}" in text else 0.0
    year, month, day, hour, minute, second = (int(part) for part in parts[:6])
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp() + fraction


def _resampled(samples: Samples, step_s: float, steps: int) -> list[Point]:
    """Return a line per step that has a value. The last step also takes the rest of the recording."""
    lines: dict[int, Point] = defaultdict(dict)
    for column, each in samples.items():
        if TRACED[column].unit is Rate:
            means = _means_over_time(each, step_s, steps)
        else:
            begun: dict[int, list[float]] = defaultdict(list)
            for sample in each:
                begun[min(steps - 1, math.floor(sample.begin_s / step_s + 1e-9))].append(sample.value)
            delay = TRACED[column].unit is Delay
            means = {
                step: statistics.median(values) if delay else _mean(column, values) for step, values in begun.items()
            }
        for step, value in means.items():
            lines[step][column] = round(value, 6)
    return [{TIME: round(step * step_s, 6), **lines[step]} for step in sorted(lines)]


def _means_over_time(samples: Sequence[Sample], step_s: float, steps: int) -> dict[int, float]:
    sums: dict[int, float] = defaultdict(float)
    seconds: dict[int, float] = defaultdict(float)
    for sample in samples:
        step = min(steps - 1, math.floor(sample.begin_s / step_s + 1e-9))
        begin_s = sample.begin_s
        while begin_s < sample.end_s:
            end_s = sample.end_s if step == steps - 1 else min(sample.end_s, (step + 1) * step_s)
            sums[step] += sample.value * (end_s - begin_s)
            seconds[step] += end_s - begin_s
            begin_s, step = end_s, min(steps - 1, step + 1)
    return {step: total / seconds[step] for step, total in sums.items() if seconds[step] > 0}


def _without_zero_rates(points: Sequence[Point]) -> int:
    """Turn a rate of 0 into a loss of 100 %; the recorded loss holds around it. Return how often."""
    outages = sum(point.get(_RATE, LEAST_MBPS) < LEAST_MBPS for point in points)
    held = next((point[_LOSS] for point in points if _LOSS in point), 0.0)
    for point in points if outages else ():
        held = point.setdefault(_LOSS, held)
        if point.get(_RATE, LEAST_MBPS) < LEAST_MBPS:
            del point[_RATE]
            point[_LOSS] = 100.0
    return outages
