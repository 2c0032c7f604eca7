"""Convert a recording of another tool to a trace: mahimahi, `iperf3 --json`, ping, or any table. Pure.

A recording is read as samples, values that hold for a while, and then resampled to steps of equal length: the rate of a
step is the mean over its time, so that bytes are kept. A delay is the median of the samples that begin in the step, and
a loss is their mean. A share p of lost round trips is a loss of 1 - sqrt(1 - p) in each direction. A length of bursts
is the mean of those above 0. A step that passes nothing is an outage: a trace has no rate of 0, so its loss is 100 %.
"""

import csv
import math
import re
import shlex
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain, pairwise

from wanbench.harness.errors import SpecError
from wanbench.harness.measure.iperf3 import Report, intervals, read_report
from wanbench.harness.measure.ping import Pings, each_way, read_pings
from wanbench.harness.spec.timeline import (
    COUNTS,
    LEAST_MBPS,
    LONGEST_S,
    MOST_LINES,
    TIME,
    TRACED,
    VALUES,
    Point,
    check_points,
)
from wanbench.netprofiles import Delay, Rate, UnitError
from wanbench.netprofiles.errors import did_you_mean
from wanbench.netprofiles.user_file import number, read_table

_RATE, _RTT, _LOSS = "rate_mbps", "rtt_ms", "loss_pct"
_DELAYS = (_RTT, "one_way_ms")
_PACKET_MBPS = 1500 * 8 / 1000  # one packet of mahimahi per millisecond
_MOST_PINGS = 1_000_000  # 28 hours at ten a second
_NO_VALUE = {"", "-", "na", "nan", "null", "none"}
_DATE = re.compile(
    r"(\d{4})\D(\d\d?)\D(\d\d?)\D+(\d\d?)\D(\d\d)\D(\d\d)(?:[.,](\d+))?\s*(?:Z|UTC|([+-])(\d\d):?(\d\d)?)?",
    re.IGNORECASE,
)
_UNITS = ((1e17, "ns", "nanoseconds"), (1e14, "us", "microseconds"), (1e11, "ms", "milliseconds"))  # since 1970
_LONG_STEP_S, _EARLIEST_S = 100, 1e8  # of recordings that count from their begin, not from 1970
_EXAMPLE = "time_s=1,rate_mbps=2"


@dataclass(frozen=True, slots=True)
class Sample:
    """A value that holds from `begin_s` to `end_s`."""

    begin_s: float
    end_s: float
    value: float


Samples = Mapping[str, Sequence[Sample]]
"""The samples of each column of a trace."""


@dataclass(frozen=True)
class Recording:
    """What another tool recorded. `round_trips`: its loss is that of round trips."""

    tool: str
    samples: Samples
    remarks: tuple[str, ...] = ()
    round_trips: bool = False


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


def convert(
    text: str, name: str, every_s: float | None = None, columns: str | None = None, lost: Collection[str] = ()
) -> Converted:
    """Convert the text of a recording; its format is recognised.

    Args:
        name: name of the file, for messages.
        every_s: length of a step. Default: 1 s, or more if the trace would have too many lines.
        columns: columns of a table, such as `time_s=Timestamp,rate_mbps=DL_bitrate:kbps`; without a header by number.
        lost: values of a delay that stand for a lost packet, such as `0` or `timeout`.

    Raises:
        SpecError: the text has no known format, or values that a trace cannot have.
    """
    try:
        recording = _read(text, columns, lost)
        length_s = max((sample.end_s for samples in recording.samples.values() for sample in samples), default=0.0)
        step_s = every_s or max(1, math.ceil(length_s / MOST_LINES))
        steps = max(1, math.floor(length_s / step_s + 1e-9))
        if steps > MOST_LINES:
            least = math.ceil(length_s / MOST_LINES)
            raise ValueError(f"--every {step_s:g}s makes {steps} steps; expected at most {MOST_LINES}, e.g. {least}s")
        points = _resampled(recording, step_s, steps)
        outages = _without_zero_rates(points)
        check_points(points)
    except OverflowError:
        raise SpecError(f"{name}: a number is too large; expected a recording of one of the known tools") from None
    except ValueError as error:
        raise SpecError(f"{name}: {error}") from None
    remarks = [f"{name}: {recording.tool}, {length_s:g} s, {len(points)} lines of {step_s:g} s", *recording.remarks]
    if outages:
        remarks.append(
            f"in {outages} of them nothing passes, so every packet is lost; a longer --every averages over such gaps"
        )
    return Converted(points, tuple(remarks))


def _read(text: str, columns: str | None, lost: Collection[str]) -> Recording:
    if columns is not None:
        return _table(text, columns, lost)
    if lost:
        raise ValueError("--lost: it is for a table; name its columns with --columns")
    if (report := read_report(text)) is not None:
        return _iperf3(report)
    if (pings := read_pings(text)) is not None:
        return _ping(pings)
    lines = text.split()
    if lines and all(line.isascii() and line.isdecimal() for line in lines):
        return Recording("mahimahi", _mahimahi([int(line) for line in lines]))
    if TIME in text.partition("\n")[0]:
        return _table(text, None, ())
    raise ValueError(
        "expected a mahimahi trace, JSON of iperf3, output of ping, or a table; for a table, add --columns "
        "time_s=NAME,rate_mbps=NAME, or time_s=1,rate_mbps=2 if it has no header"
    )


def _mahimahi(times_ms: Sequence[int]) -> Samples:
    for line, (before, after) in enumerate(pairwise(times_ms), 2):
        if after < before:
            raise ValueError(f"line {line}: expected {before} or more, as in the line before, got {after}")
    if not times_ms[-1]:
        raise ValueError("expected a last time above 0 ms, which is the length of the trace")
    samples, end_ms = [], 0
    # The packets of a millisecond leave at its end. The trace repeats, so a time of 0 is the end of the last one.
    for time_ms, packets in sorted(Counter(time_ms or times_ms[-1] for time_ms in times_ms).items()):
        samples += [
            Sample(end_ms / 1000, (time_ms - 1) / 1000, 0.0),
            Sample((time_ms - 1) / 1000, time_ms / 1000, packets * _PACKET_MBPS),
        ]
        end_ms = time_ms
    return {_RATE: samples}


def _iperf3(report: Report) -> Recording:
    samples: dict[str, list[Sample]] = defaultdict(list)
    for begin_s, end_s, values in intervals(report):
        for column, value in values.items():
            samples[column].append(Sample(begin_s, end_s, value))
    if not samples:
        raise ValueError("iperf3 reported no interval; measure for longer")
    remarks = [f"iperf3 ended early: {report.error}"] if report.error else []
    if report.both:
        remarks.append("--bidir: the rate is that of what was sent from here; record the other direction with -R alone")
    return Recording("iperf3", samples, tuple(remarks))


def _ping(pings: Pings) -> Recording:
    """Pings are sent at equal intervals, so the number of each answer gives its time."""
    interval_s = pings.interval_s or 1.0
    count = max(pings.rtts_ms) + 1 if pings.sent is None else pings.sent
    if count > _MOST_PINGS:
        raise ValueError(f"{count} pings were sent; expected at most {_MOST_PINGS}")
    samples: dict[str, list[Sample]] = defaultdict(list)
    for ping in range(count):
        begin_s, end_s = ping * interval_s, (ping + 1) * interval_s
        if pings.sent is not None:
            samples[_LOSS].append(Sample(begin_s, end_s, 0.0 if ping in pings.rtts_ms else 100.0))
        if ping in pings.rtts_ms:
            samples[_RTT].append(Sample(begin_s, end_s, pings.rtts_ms[ping]))
    assumed = "" if pings.interval_s else " (assumed; record with -D)"
    return Recording(f"one ping per {interval_s:.4g} s{assumed}", samples, (pings.summary,), round_trips=True)


# ---------------------------------------------------------------- tables


def _table(text: str, columns: str | None, lost: Collection[str]) -> Recording:
    lines = read_table(text)
    begin = next(lines, (1, [""]))
    header = begin[1]
    if columns is not None and any(_is_value(cell) for cell in header):
        header, lines = [str(number) for number in range(1, len(header) + 1)], chain([begin], lines)
    taken = _taken(header, columns)
    delay = next((column for column in _DELAYS if column in taken), "")
    if lost and (not delay or _LOSS in taken):
        raise ValueError(f"--lost: it is for values of {' or '.join(_DELAYS)}; expected such a column, and no {_LOSS}")
    values_of: dict[str, dict[float, list[float]]] = {column: defaultdict(list) for column in taken if column != TIME}
    if lost:
        values_of[_LOSS] = defaultdict(list)
    times: list[float] = []
    delays: Counter[str] = Counter()
    for line, cells in lines:
        try:
            row = dict(zip(header, cells, strict=True))
            times.append(_time(row[taken[TIME][0]]) * taken[TIME][1])
            if times[-1] < times[max(0, len(times) - 2)]:
                raise ValueError("its time is before that of the line before; sort the lines")
            for column, value in _values(row, taken, delay, lost):
                values_of[column][times[-1] - times[0]].append(value)
            delays.update([row[taken[delay][0]]] if delay else [])
        except ValueError as error:
            raise ValueError(f"line {line}: {error}") from None
    if not any(values_of.values()):
        raise ValueError(f"no line has a value of {', '.join(values_of)}")
    last_s = times[-1] - max((time_s for time_s in times if time_s < times[-1]), default=times[-1] - 1)
    samples = {column: list(_holding(column, values, last_s)) for column, values in values_of.items() if values}
    remarks = [*_doubtful_unit(times, taken[TIME][0], columns or TIME), *_doubtful_delays(delay, delays, lost)]
    if times[-1] - times[0] > LONGEST_S and remarks:
        raise ValueError(remarks[0])
    return Recording("table", samples, tuple(remarks), round_trips=bool(lost) and delay == _RTT)


def _values(
    row: Mapping[str, str], taken: Mapping[str, tuple[str, float]], delay: str, lost: Collection[str]
) -> Iterator[tuple[str, float]]:
    """The values in a line, and whether its packet was lost, if `lost` has the delays that say so."""
    for column, (name, factor) in taken.items():
        gone = column == delay and _is_any_of(row[name], lost)
        if column == delay and lost:
            yield _LOSS, 100.0 * gone
        if gone or column == TIME or row[name].lower() in _NO_VALUE:
            continue
        try:
            yield column, number(column, row[name], factor)
        except ValueError as error:
            may_be_lost = column == delay and row[name].isprintable()
            hint = f"; if it stands for a lost packet, add --lost {shlex.quote(row[name])}" if may_be_lost else ""
            raise ValueError(f"{error}{hint}") from None


def _doubtful_unit(times: Sequence[float], name: str, columns: str) -> Iterator[str]:
    """A remark if times without a unit are hardly seconds: they are beyond the year 5138, or far apart."""
    step_s = statistics.median([after - before for before, after in pairwise(times) if after > before] or [0.0])
    least_s = _UNITS[-1][0] if times[0] < _EARLIEST_S and step_s >= _LONG_STEP_S else times[0]
    for _, unit, units in [entry for entry in _UNITS if least_s >= entry[0]][:1]:
        if f"{TIME}={name}" in columns.split(","):
            yield f"{TIME}: steps of {step_s:g} s; {units}? then write {TIME}={name}:{unit}"


def _doubtful_delays(delay: str, cells: Counter[str], lost: Collection[str]) -> Iterator[str]:
    """A remark for each value that may stand for a lost packet."""
    for cell, count in cells.items():
        if not _is_any_of(cell, lost) and (cell.lower() in _NO_VALUE or _is_any_of(cell, "0")):
            add = f"add --lost {shlex.quote(cell)}"
            yield f"{delay}: {count} of {cells.total()} values are {cell!r}; if they are lost packets, {add}"


def _is_any_of(cell: str, lost: Iterable[str]) -> bool:
    """Whether the cell is one of these words or numbers."""
    for word in lost:
        if cell.lower() == word.strip().lower():
            return True
        with suppress(ValueError):
            if float(cell) == float(word):
                return True
    return False


def _is_value(cell: str) -> bool:
    with suppress(ValueError):
        return math.isfinite(_time(cell))
    return False


def _mean(column: str, values: Sequence[float]) -> float:
    """Return the mean; of lengths of bursts, without 0, which is no burst."""
    return statistics.fmean([value for value in values if value or column not in COUNTS] or [0.0])


def _holding(column: str, values: Mapping[float, Sequence[float]], last_s: float) -> Iterator[Sample]:
    """Yield one sample per time; it holds until the next, and the last for `last_s`, as long as the line before it."""
    for begin_s, end_s in pairwise([*values, max(values) + last_s]):
        yield Sample(begin_s, end_s, _mean(column, values[begin_s]))


def _taken(header: Sequence[str], columns: str | None) -> dict[str, tuple[str, float]]:
    """Return for each column of the trace its name in the file, and the factor of its unit."""
    given = next(csv.reader([columns or ""]), [])
    pairs = [(column.strip(), source) for column, _, source in (pair.partition("=") for pair in given)]
    taken: dict[str, tuple[str, float]] = {}
    for column, source in pairs or [(name, name) for name in header if name in (TIME, *VALUES)]:
        name, _, unit = source.partition(":") if source not in header else (source, "", "")
        if column not in (TIME, *VALUES):
            raise ValueError(f"--columns: {column!r}: expected one of {', '.join((TIME, *VALUES))}, as in {_EXAMPLE}")
        if name not in header:
            near = did_you_mean(name, header)
            raise ValueError(f"--columns: {column}: no column {name!r} in the file; it has {', '.join(header)}{near}")
        if column in taken or header.count(name) > 1:
            raise ValueError(f"two columns for {column}; name one, and rename columns of the same name")
        taken[column] = name, _factor(column, unit)
    if TIME not in taken or len(taken) < 2:
        raise ValueError(f"--columns: expected {TIME} and at least one of {', '.join(VALUES)}")
    return taken


def _factor(column: str, unit: str) -> float:
    kind = Delay if column == TIME else TRACED[column].unit
    own = "s" if column == TIME else kind.scale.unit
    try:
        return float(kind.parse(f"1{unit or own}").plain / kind.parse(f"1{own}").plain)
    except UnitError:
        units = ", ".join(kind.scale.units) or own
        raise ValueError(f"--columns: {column}: unknown unit {unit!r}; expected one of {units}") from None


def _time(text: str) -> float:
    """Read a number, or a date and time from the year to the second, in UTC if it has no offset."""
    with suppress(ValueError):
        if math.isfinite(time_s := float(text)):
            return time_s
    if (parts := _DATE.fullmatch(text)) is not None:
        year, month, day, hour, minute, second = (int(part) for part in parts.groups()[:6])
        fraction, sign, hours, minutes = parts.groups()[6:]
        offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0)) * (-1 if sign == "-" else 1)
        with suppress(ValueError):
            time = datetime(year, month, day, hour, minute, second, tzinfo=UTC) - offset
            return time.timestamp() + float(f"0.{fraction or 0}")
    raise ValueError(
        f"{TIME}: expected a number or a date and time, got {text!r}; a date is like 2026-03-29T01:59:58 or ...58+01:00"
    )


def _resampled(recording: Recording, step_s: float, steps: int) -> list[Point]:
    """Return a line per step that has a value. The last step also takes the rest of the recording."""
    lines: dict[int, Point] = defaultdict(dict)
    for column, samples in recording.samples.items():
        if TRACED[column].unit is Rate:
            means = _means_over_time(samples, step_s, steps)
        else:
            begun: dict[int, list[float]] = defaultdict(list)
            for sample in samples:
                begun[min(steps - 1, math.floor(sample.begin_s / step_s + 1e-9))].append(sample.value)
            means = {
                step: statistics.median(values) if TRACED[column].unit is Delay else _mean(column, values)
                for step, values in begun.items()
            }
        if column == _LOSS and recording.round_trips:
            means = {step: 100 * each_way(value / 100) for step, value in means.items()}
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
