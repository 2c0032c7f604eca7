"""The one reader of ping: iputils, BusyBox, BSD, inetutils, Windows and fping, in any language. Pure.

Words differ by language, so a line is recognised by its numbers. An answer has a time, and the number of the ping or an
address. The statistics have the pings that were sent and received, and what is lost must agree with them. Each line may
begin with the time of day or the seconds since 1970: of `-D`, `--apple-time`, `ts`, a shell's `date` or PowerShell.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

_UNIT = r"(?:ms|msec|m|мс|毫秒|ミリ秒|밀리초|\ufffd+)(?!\w)"  # Spanish has `<1m`; \ufffd is of another encoding
_TIME = re.compile(rf"([=<]|bytes,)\s*(\d+(?:[.,]\d+)?)[\s\ufffd]*{_UNIT}")
_SEQUENCE = re.compile(r"(?:\b(?:icmp_)?(?:seq|req)[= ]|: (?:duplicate for )?\[)(\d{1,9})\b")
_HOST = re.compile(
    r"\d{1,3}(?:\.\d{1,3}){3}|(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|[0-9a-f:]{0,35}::[0-9a-f:]{0,35}[0-9a-f]"
    r"|\S+(?= +: \[)",  # of fping
    re.IGNORECASE,
)
_STAMP = re.compile(
    r"(?:[^=\n]{0,40}?[\s\[(\"T,])??(?:(\d{10})|(\d\d?):(\d\d):(\d\d))([.,]\d+)?(?![\d:.])"
    r" ?(?:Z|[+-]\d\d:?\d\d|(?!PING)[A-Z]{2,5}\b)?(?: \d{4}\b)?[\s\]):|>\",-]*"  # CEST 2024: or PM -
)
_HALF_DAY_S = 12 * 3600  # clock times are counted modulo this, as some are written with AM and PM
_REPEATED = re.compile(r"!\)|duplicate")
_TTL = re.compile(r"\b(?:ttl|hlim)=", re.IGNORECASE)
_FROM_0 = re.compile(r"\): \d+ data bytes|: \[\d+\]")  # BusyBox, BSD and fping; iputils counts from 1
_STATISTICS = re.compile(
    # 20 packets transmitted, 18 received, +1 duplicates, 10% packet loss, time 19028ms
    r"(?<![=\d])(?<!= )(\d{1,15})[^\d%\n,，、]*[,，、][^\d%+\n]*(\d{1,15})[^%\n]*?(\d+(?:[.,]\d+)?)\s*%"
    r"(?:.*\D(\d+) ?[^\W\d]+\s*$)?"
    # 192.0.2.9 : xmt/rcv/%loss = 20/18/10%, of fping
    r"|/%loss = (\d+)/(\d+)/\d+%"
    # Sent = 20, Received = 18, Lost = 2 (10% loss), of Windows, which breaks this line in some languages
    r"|=\s*(\d{1,15})\s*[,，、\ufffd][^\d=]*=\s*(\d{1,15})\s*[,，、\ufffd][^\d=]*=\s*\d+\s*[(（]",
    re.MULTILINE,
)
_VECTOR = re.compile(r"^(\S+) +:((?: (?:\d+(?:\.\d+)?|-))+)\s*$", re.MULTILINE)  # of fping -C -q
_NAMED = re.compile("ping|/%loss", re.IGNORECASE)
_LONGEST = 400  # what is longer is no line of ping, and would take long
_TITLE = re.compile(r"[:：]\s*$")
_EACH_ALONE = "expected one run to one host, so give each its own file"
_WRAP = 1 << 16  # pings are counted modulo this


@dataclass(frozen=True)
class Pings:
    """The pings of one run.

    Attributes:
        rtts_ms: the round trips by the number of the ping, which begins at 0.
        sent: number of pings; None if it is unknown. Without statistics it ends with the last ping that has a line.
        interval_s: time from one ping to the next, None if it is unknown.
        summary: how many were answered, as text.
    """

    rtts_ms: Mapping[int, float]
    sent: int | None
    interval_s: float | None
    summary: str


class _Line(NamedTuple):
    """A line without its stamp. `stamp_s`: its value in seconds, and whether it had decimals; None without one."""

    number: int
    text: str
    host: str
    sequence: int | None
    rtt_ms: float | None
    stamp_s: tuple[float, bool] | None = None


def each_way(share: float) -> float:
    """The loss in each direction that loses this share of round trips, if both directions lose alike."""
    return 1 - math.sqrt(1 - share)


def read_pings(text: str) -> Pings | None:
    """Read the output of ping; None if it is something else.

    Raises:
        ValueError: begins with the line; the output is not that of one whole run to one host.
    """
    if not any(pattern.search(text) for pattern in (_TIME, _VECTOR, _NAMED)):
        return None
    lines = list(_lines(text))
    timed = [line for line in lines if line.rtt_ms is not None]
    counts = list(_statistics(lines))
    if not timed and not counts:
        return None
    begins = [line.number for line in lines if line.text.startswith("PING ")][1:] + [line for line, *_ in counts[1:]]
    begins += [line.number for line in timed if line.host != timed[0].host or (counts and line.number > counts[0][0])]
    if begins:
        raise _two_runs(min(begins))
    numbered = any(line.sequence is not None for line in timed)
    answers, pings, unreached = _numbered(text, lines, bool(counts)) if numbered else _in_order(lines)
    sent, took_s = len(pings) if numbered else None, None
    if counts:
        ((number, sent, received, took_s),) = counts
        fits = pings.stop <= sent + pings.start if numbered else len(pings) == sent or not timed
        if not (fits and len(answers) <= received <= len(answers) + unreached):
            counted = f"the statistics count {received} answers to {sent} pings, the lines {len(answers)}"
            raise ValueError(f"line {number}: {counted}; expected the whole output, without -q")
    return Pings(
        {number - pings.start: line.rtt_ms for number, line in answers.items() if line.rtt_ms is not None},
        sent,
        _interval_s(answers, sent, took_s),
        _summary([line.text for line in answers.values()], sent, bool(counts)),
    )


def _two_runs(line: int) -> ValueError:
    return ValueError(f"line {line}: ping begins again, or another host answers; {_EACH_ALONE}")


def _lines(text: str) -> Iterator[_Line]:
    for number, whole in enumerate(text.splitlines(keepends=True), 1):
        row, stamp_s = _unstamped(whole)
        head = row[:_LONGEST]
        times, sequence, host = _TIME.findall(head), _SEQUENCE.search(head), _HOST.search(head)
        if (vector := _VECTOR.match(row)) and "bytes," not in text:
            for ping, value in enumerate(vector[2].split()):
                yield _Line(number, head, vector[1], ping, None if value == "-" else float(value))
            continue
        timed = len(times) == 1 and bool(sequence or host)
        if not timed and not row.endswith(("\n", "\r")):
            sequence = None  # the output may be cut off here
        elif not timed and _TTL.search(head):
            raise ValueError(f"line {number}: expected an answer with its time in ms, such as `time=84.9 ms`")
        rtt_ms = float(times[0][1].replace(",", ".")) if timed else None
        yield _Line(number, head, host[0] if host else "", int(sequence[1]) if sequence else None, rtt_ms, stamp_s)


def _unstamped(row: str) -> tuple[str, tuple[float, bool] | None]:
    """A line without its stamp, and the stamp."""
    if (stamp := _STAMP.match(row)) is None:
        return row, None
    epoch, hours, minutes, seconds, decimals = (value or "0" for value in stamp.groups())
    whole_s = int(epoch) + 3600 * int(hours) + 60 * int(minutes) + int(seconds)
    return row[stamp.end() :], (whole_s + float(f"0{decimals.replace(',', '.')}"), stamp[5] is not None)


def _statistics(lines: Iterable[_Line]) -> Iterator[tuple[int, int, int, float | None]]:
    """The line of the statistics of each run, pings sent and received, and its seconds if there are any.

    Raises:
        ValueError: the numbers do not agree.
    """
    rest = [line for line in lines if line.rtt_ms is None and line.sequence is None]
    text = "\n".join(line.text.rstrip() for line in rest)
    for match in _STATISTICS.finditer(text):
        sent, received = (int(value) for value in match.group(1, 2, 5, 6, 7, 8) if value is not None)
        line = rest[text.count("\n", 0, match.start())].number
        lost_pct = float(match[3].replace(",", ".")) if match[3] else 100 * (1 - received / max(sent, 1))
        if received > sent or abs(lost_pct - 100 * (1 - received / max(sent, 1))) >= 1:
            raise ValueError(f"line {line}: the numbers of pings sent, received and lost do not agree")
        yield line, sent, received, int(match[4]) / 1000 if match[4] else None


def _numbered(text: str, lines: Iterable[_Line], counted: bool) -> tuple[dict[int, _Line], range, int]:
    """The answers, and the numbers of all pings, if lines have their numbers: one without an answer is a loss."""
    answers: dict[int, _Line] = {}
    named = [(line, line.sequence) for line in lines if line.sequence is not None]
    first = last = named[0][1]
    for line, sequence in named:
        number = sequence + _WRAP * round((last - sequence) / _WRAP)
        first, last = min(first, number), max(last, number)
        if line.rtt_ms is not None and number in answers and not _REPEATED.search(line.text):
            raise _two_runs(line.number)
        if line.rtt_ms is not None:
            answers.setdefault(number, line)
    if counted:
        first = min(first, 0 if _FROM_0.search(text) else 1)
    return answers, range(first, last + 1), 0


def _in_order(lines: Iterable[_Line]) -> tuple[dict[int, _Line], range, int]:
    """The same of Windows, which has a line for each ping, between a title and that of the statistics.

    Returns also the number of routers that answered that they do not reach the host: Windows counts them as received.
    """
    body: list[_Line] = []
    for line in lines:
        if not _TITLE.search(line.text):
            body += [line] if line.text.strip() else []
        elif any(entry.rtt_ms is not None for entry in body):
            break
        else:
            body = []
    answers = {number: line for number, line in enumerate(body) if line.rtt_ms is not None}
    return answers, range(len(body)), sum(line.rtt_ms is None and bool(line.host) for line in body)


def _interval_s(answers: Mapping[int, _Line], sent: int | None, took_s: float | None) -> float | None:
    """From stamps with decimals, else from the statistics, else from stamps in seconds.

    Raises:
        ValueError: it is not above 0.
    """
    stamps = [(number, *line.stamp_s) for number, line in sorted(answers.items()) if line.stamp_s is not None]
    fine = len(stamps) > 1 and stamps[0][2]
    if not fine and took_s is not None and sent is not None and sent > 1:
        interval_s = took_s / (sent - 1)
    elif len(stamps) > 1:
        period_s = _HALF_DAY_S if stamps[0][1] <= 2 * _HALF_DAY_S else math.inf
        steps = (math.remainder(after - before, period_s) for (_, before, _), (_, after, _) in pairwise(stamps))
        interval_s = sum(steps) / (stamps[-1][0] - stamps[0][0])
    else:
        return None
    if interval_s > 0:
        return interval_s
    if stamps and not fine:
        return None  # all in the same second
    raise ValueError("the times of the pings do not grow; expected the output of one run of ping")


def _summary(answers: Sequence[str], sent: int | None, counted: bool) -> str:
    text = f"{len(answers)} of {sent} answers"
    if sent is None or (not counted and sent == len(answers)):
        text = f"{len(answers)} answers, {'loss unknown' if sent is None else 'none missing between them'}"
    if lost := sent and 1 - len(answers) / sent:
        text += f", {100 * lost:.4g} % of round trips lost is {100 * each_way(lost):.4g} % each way"
    text += "" if counted else ", without statistics"
    bounded = sum("<" in answer for answer in answers)
    return text + (f", {bounded} below 1 ms counted as 1 ms" if bounded else "")
