"""The one reader of the JSON of iperf3, from version 3.0 on: whole, or a stream of events. Pure."""

import json
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from wanbench.netprofiles.user_file import number

_BEGIN = re.compile(r"^[ \t]*\{", re.MULTILINE)
_NOT_A_NUMBER = re.compile(r"(:\s*)-?(?:nan|inf)\b", re.IGNORECASE)  # as C prints it; JSON has no such word
_REVERSE = "_bidir_reverse"
_EXPECTED = "expected the JSON of `iperf3 -c HOST -J`"


@dataclass(frozen=True)
class Report:
    """A report of iperf3. The second direction of --bidir has keys that end in `_bidir_reverse`, in all versions.

    Attributes:
        error: why it ended early; empty if it did not.
    """

    start: Mapping[str, Any]
    intervals: Sequence[Mapping[str, Any]]
    end: Mapping[str, Any]
    error: str

    @property
    def both(self) -> bool:
        """Both directions were measured at once, by --bidir."""
        return any(key.endswith(_REVERSE) for part in (self.end, *self.intervals[:1]) for key in part)


def read_report(text: str) -> Report | None:
    """Read the JSON of iperf3; None if the text has none.

    Raises:
        ValueError: it is not that of one measurement, or iperf3 failed.
    """
    if _BEGIN.search(text) is None:
        return None
    with as_report():
        documents = list(_documents(_NOT_A_NUMBER.sub(r"\1NaN", text)))
        events = [(document["event"], document["data"]) for document in documents if "event" in document]
        whole = [document for document in documents if "event" not in document]  # or the last of a stream
        if len(whole) > 1 or sum(event == "start" for event, _ in events) > 1:
            raise ValueError("two reports of iperf3; expected one, so give each its own file")
        data = {"intervals": [interval for event, interval in events if event == "interval"], **dict(events)}
        data = whole[0] if whole else data
        if not data.keys() & {"intervals", "end", "error"}:
            raise KeyError
        report = Report(
            data.get("start") or {},
            data.get("intervals") or [],
            {**data.get("end", {})},
            str(data.get("error", "")),
        )
    if report.error and not report.intervals:
        raise ValueError(f"iperf3 failed: {report.error}")
    return report


@contextmanager
def as_report() -> Iterator[None]:
    """Raise ValueError where a report has not the keys and types of iperf3."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError, json.JSONDecodeError):
        raise ValueError(f"not a report of iperf3; {_EXPECTED}") from None


def _documents(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects, without the warnings before, between and after them."""
    decoder = json.JSONDecoder(object_pairs_hook=_named_apart)
    at = 0
    while begin := _BEGIN.search(text, at):
        document, at = decoder.raw_decode(text, begin.end() - 1)
        yield document


def _named_apart(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The object. iperf3 3.7 repeats the keys of sums for the second direction; later versions name it."""
    named: dict[str, Any] = {}
    for key, value in pairs:
        named[f"{key}{_REVERSE}" if key in named else key] = value
    return named


def received(report: Report) -> list[tuple[bool, float, float]]:
    """What the receiver counted in each direction.

    Returns:
        Whether it was the machine that wrote the report (the client of `-R`, or the server of a test without it), its
        Mbit/s, and the seconds.

    Raises:
        ValueError: it counted nothing, or iperf3 did not end.
    """
    if report.error or not report.end:
        failure = f"iperf3 failed: {report.error}" if report.error else "the report of iperf3 has no end"
        raise ValueError(f"{failure}; measure again, until iperf3 has finished")
    with as_report():
        return [_received(report, suffix) for suffix in (("", _REVERSE) if report.both else ("",))]


def _received(report: Report, suffix: str) -> tuple[bool, float, float]:
    total, sent = ({**(report.end.get(f"{key}{suffix}") or {})} for key in ("sum_received", "sum"))
    back = bool(report.start.get("test_start", {}).get("reverse")) != ("accepted_connection" in report.start)
    if report.both:
        back = not (sent or total).get("sender", not suffix)
    lost_pct = 0.0
    if sent and not total.get("bits_per_second"):  # UDP before 3.10 has only what was sent, and the share that was lost
        if not sent.get("packets", 1):
            raise ValueError("iperf3: the receiver of UDP counted no packet; measure again")
        total, lost_pct = sent, number("end: lost_percent", sent.get("lost_percent", 0))
    mbps = number("end: bits_per_second", total["bits_per_second"]) / 1e6 * (1 - lost_pct / 100)
    if mbps <= 0:
        raise ValueError("iperf3 transferred no data that its receiver counted; measure again")
    return back, mbps, number("end: seconds", total["seconds"])


def intervals(report: Report) -> Iterator[tuple[float, float, Mapping[str, float]]]:
    """Yield begin and end of each interval that is not omitted, and its `rate_mbps`, `loss_pct` and `rtt_ms`.

    Of --bidir it is the direction from the machine that wrote the report.

    Raises:
        ValueError: a number is not one, or UDP was sent by this machine, so that it does not know what arrived.
    """
    with as_report():
        kept = [interval for interval in report.intervals if not interval["sum"].get("omitted")]
        for count, interval in enumerate(kept, 1):
            total = interval["sum"]
            if "packets" in total and "lost_percent" not in total:
                raise ValueError("UDP as it was sent, not as it arrived; record with `iperf3 -u -R`")
            keys = ("start", "end", "bits_per_second")
            begin_s, end_s, bps = (number(f"interval {count}: {key}", total[key]) for key in keys)
            values = {"rate_mbps": bps / 1e6}
            if "lost_percent" in total and total.get("packets", 1):  # of no packet nothing is known
                values["loss_pct"] = number(f"interval {count}: lost_percent", total["lost_percent"])
            rtts = [number(f"interval {count}: rtt", flow["rtt"]) for flow in interval["streams"] if flow.get("rtt")]
            if rtts:
                values["rtt_ms"] = statistics.median(rtts) / 1000
            first_s = float(kept[0]["sum"]["start"])
            yield begin_s - first_s, end_s - first_s, values
