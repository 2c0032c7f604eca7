"""Make a profile from the output of ping and iperf3, each value with its source. Pure, except `run_tools`."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from wanbench.harness.errors import HostError, SpecError

_SAMPLE = re.compile(r"\btime[=<]([0-9.]+) ?ms")
_COUNTS = re.compile(r"(\d+) packets transmitted, (\d+)(?: packets)? received")
_PINGS, _PING_INTERVAL_S = 50, "0.2"
_IPERF_S = 10


@dataclass(frozen=True)
class Reading:
    """The values of one output about the path between two sites. A value that it does not have is None.

    Attributes:
        rtt_ms: median of the round trips.
        jitter_ms: standard deviation of one direction, estimated as half the distance between the 16th and the 84th
            percentile of the round trips over sqrt(2).
        loss_pct: lost packets; None if none was lost, which is only an upper bound.
        rate_mbps: rate of the flows.
        source: readable source, with numbers and date.
    """

    rtt_ms: float | None = None
    jitter_ms: float | None = None
    loss_pct: float | None = None
    rate_mbps: float | None = None
    source: str = ""


def read(text: str, name: str, day: date) -> Reading:
    """Parse the output of ping, or the JSON of iperf3 (`-J`).

    Args:
        name: name of the file or host, for messages and the source.
        day: day of the measurement.

    Raises:
        SpecError: the text is neither, or has no measurement.
    """
    if text.lstrip().startswith("{"):
        return _iperf3(text, name, day)
    return _ping(text, name, day)


def _ping(text: str, name: str, day: date) -> Reading:
    times = [float(sample) for sample in _SAMPLE.findall(text)]
    if not times:
        raise SpecError(f"{name}: expected output of ping (with `time=... ms`) or JSON of iperf3, got neither")
    counts = _COUNTS.search(text)
    sent, received = (int(counts[1]), int(counts[2])) if counts else (len(times), len(times))
    lost = 100 * (1 - received / sent) if sent else 0.0
    return Reading(
        rtt_ms=round(statistics.median(times), 3),
        jitter_ms=_deviation(times),
        loss_pct=round(lost, 4) if lost > 0 else None,
        source=f"ping, {received} of {sent} answers, {name}, {day}",
    )


def _deviation(times: list[float]) -> float | None:
    if len(times) < 10:
        return None
    ordered = statistics.quantiles(times, n=100, method="inclusive")
    return round((ordered[83] - ordered[15]) / 2 / 2**0.5, 4)


def _iperf3(text: str, name: str, day: date) -> Reading:
    try:
        data: dict[str, Any] = json.loads(text)
        if "error" in data:
            raise SpecError(f"{name}: iperf3 failed: {data['error']}")
        end = data["end"]
        total = end.get("sum_received") or end["sum"]
        mbps = float(total["bits_per_second"]) / 1e6
        seconds = float(total["seconds"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SpecError(f"{name}: not a report of iperf3; expected the JSON of `iperf3 -c HOST -J`") from None
    if mbps <= 0:
        raise SpecError(f"{name}: iperf3 transferred no data; measure again")
    lost = float(end.get("sum", {}).get("lost_percent", 0.0))
    streams = len(data.get("start", {}).get("connected", [])) or 1
    flows = "one flow" if streams == 1 else f"{streams} flows"
    return Reading(
        rate_mbps=round(mbps, 3),
        loss_pct=round(lost, 4) if lost > 0 else None,
        source=f"iperf3, {flows}, {seconds:.0f} s, {name}, {day}",
    )


def run_tools(host: str, *, rate: bool) -> list[str]:
    """Run ping, and with `rate` iperf3, against a host. Return their outputs. Raises: HostError."""
    commands = [["ping", "-n", "-c", str(_PINGS), "-i", _PING_INTERVAL_S, host]]
    if rate:
        commands.append(["iperf3", "-c", host, "-J", "-t", str(_IPERF_S), "-O", "2"])
    outputs = []
    for command in commands:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        except FileNotFoundError:
            package = {"ping": "iputils-ping", "iperf3": "iperf3"}[command[0]]
            raise HostError(f"{command[0]}: not installed; run: sudo apt-get install {package}") from None
        except subprocess.TimeoutExpired:
            raise HostError(f"{command[0]} {host}: it did not end within 120 s") from None
        if done.returncode != 0 and not done.stdout.strip().startswith("{"):
            last_line = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no answer"]
            raise HostError(f"{command[0]} {host}: {last_line[0]}")
        outputs.append(done.stdout)
    return outputs


def profile_toml(name: str, readings: Mapping[tuple[str, str], Iterable[Reading]]) -> str:
    """Return a profile file from the readings of each pair of sites.

    Raises:
        SpecError: a pair has no reading of its round trip.
    """
    sources: dict[str, str] = {}
    lines = []
    for (src, dst), found in readings.items():
        lines.append(_path(src, dst, list(found), sources))
    sites = dict.fromkeys(site for pair in readings for site in pair)
    quoted = [f"{tag} = {_text(source)}" for source, tag in sources.items()]
    return "\n".join(
        [
            "schema = 1",
            f"name = {_text(name)}",
            f"description = {_text('Measured between ' + ', '.join(sites) + '.')}",
            "",
            "sites = [",
            *(f"  {{ name = {_text(site)} }}," for site in sites),
            "]",
            "",
            "# Each path is for both directions; one way takes half of the round trip.",
            "paths = [",
            *lines,
            "]",
            "",
            "[sources]",
            *quoted,
            "",
        ]
    )


def _path(src: str, dst: str, found: list[Reading], sources: dict[str, str]) -> str:
    cells = [f"src = {_text(src)}", f"dst = {_text(dst)}"]
    for key, attribute, unit in (
        ("rtt", "rtt_ms", "ms"),
        ("jitter", "jitter_ms", "ms"),
        ("loss", "loss_pct", "%"),
        ("rate", "rate_mbps", "Mbit"),
    ):
        measured = [reading for reading in found if getattr(reading, attribute) is not None]
        if not measured:
            if key == "rtt":
                raise SpecError(f"{src},{dst}: no round-trip time; add output of ping")
            continue
        value, source = getattr(measured[-1], attribute), measured[-1].source
        tag = sources.setdefault(source, f"s{len(sources) + 1}")
        cells += [f'{key} = "{value:g}{unit}"', f'{key}_standing = "measured"', f'{key}_source = "{tag}"']
    return f"  {{ {', '.join(cells)} }},"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
