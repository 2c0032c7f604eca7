"""Any file is either valid input, or is refused with one clear line for each mistake."""

from __future__ import annotations

import itertools
from datetime import date

from command_line import as_it_was  # noqa: F401  # the fixture is used by all
from fuzzing import CASES, IN_TOML, damaged_json, damaged_text, fuzz, or_refused
from on_relay import expand

from wanbench.harness.errors import SpecError
from wanbench.harness.measure.profile import profile_toml, read
from wanbench.harness.spec.experiment import Spec
from wanbench.harness.spec.timeline import read_trace
from wanbench.harness.timeline.convert import convert
from wanbench.netprofiles import ProfileError, load

SPEC = """schema = 1
name = "mine"
description = "What to find out."
[workload]
params = 1_000_000
tensors = 10
step_time = "20ms"
[network]
rtt = "80ms"
rate = "1Gbit"
[network.tcp]
congestion = "reno"
[comm]
collective = "direct"
channels = 2
[algorithms]
ssgd = {}
dts = { delay = [2, 4], period = 2 }
[sweep]
workers = [2, 3]
loss = ["0%", "1%"]
[[sweep.exclude]]
workers = 3
loss = "1%"
[train]
lr = 0.1
until = "40 steps"
[run]
testbed = "virtual"
window = "20 steps"
repeats = 2
seed = 1
[[timeline]]
at = "5s"
for = "1s"
rtt = "160ms"
[[gate.require]]
metric = "scalability"
where = { algorithm = "ssgd" }
min = 0.5
"""
COMMAND = """schema = 1
name = "script"
[workload]
command = ["true", "--h", "{H}"]
timeout = "60s"
warmup = "3 steps"
[network]
profile = "aws"
rate_scale = 0.1
place = "round-robin"
[sweep]
workers = [2]
H = [1, 8]
"""
DEEP = "[" * 500 + "]" * 500
SPECS_OF_OLD = [
    SPEC.replace("seed = 1", "seed = 9223372036854775807"),
    SPEC.replace("workers = [2, 3]", "workers = [1000000000000]"),
    SPEC.replace("repeats = 2", "repeats = 1000000000000"),
    SPEC.replace('loss = ["0%", "1%"]', f"loss = {[f'{n / 1000}%' for n in range(9000)]}"),
    SPEC.replace("delay = [2, 4]", f"delay = {[*range(1, 9000)]}"),
    SPEC.replace("ssgd = {}", f"ssgd = {{ x = {DEEP} }}"),
    SPEC.replace("[algorithms]", f"[algorithms.{'.'.join(['a'] * 500)}]"),
    SPEC.replace('rtt = "80ms"\nrate = "1Gbit"', 'profile = "/dev/zero"'),
    SPEC.replace('"20 steps"', '"1000000000000 steps"'),
    SPEC.replace("ssgd = {}", f'"{"n" * 60}" = {{ kind = "ssgd" }}'),
    SPEC.replace("ssgd = {}", '"a\\nb\\u001b[2J" = {}'),
    *(SPEC.replace('"20ms"', value) for value in IN_TOML),
]


def as_spec(text: str) -> None:
    with or_refused(SpecError, where="x.toml"):
        expand(Spec.from_toml(text, "x.toml"), "x.toml")


@CASES
def test_a_damaged_spec_becomes_cells_or_is_refused_clearly(cases):
    fuzz(cases, damaged_text((SPEC, COMMAND)), as_spec, SPECS_OF_OLD)


PROFILE = """schema = 1
name = "two-sites"
description = "Its purpose."
notes = ["A fact."]
[sources]
ping-2026 = "own ping"
[path_defaults]
rtt_standing = "measured"
rtt_source = "ping-2026"
[[sites]]
name = "oregon"
region = "us-west-2"
up = "10Gbit"
[[sites]]
name = "london"
[[paths]]
src = "oregon"
dst = "london"
rtt = "145ms"
jitter = "1ms"
loss = "0.1%"
rate = "1Gbit"
"""
CSV = """src,dst,rtt_ms,rate_mbps,loss_pct,jitter_ms,up_mbps
oregon,london,145,1000,0.01,0.5,
london,tokyo,210,500,,,
oregon,tokyo,97,,,,
oregon,,,,,,100
"""


@CASES
def test_a_damaged_profile_becomes_a_network_or_is_refused_clearly(cases, tmp_path):
    numbers = itertools.count()

    def as_profile(text: str) -> None:
        file = tmp_path / f"mine.{'csv' if next(numbers) % 2 else 'toml'}"
        file.write_text(text, encoding="utf-8")
        with or_refused(ProfileError, where=file.name):
            load(str(file))

    corpus = [PROFILE.replace('"145ms"', value) for value in IN_TOML] + [CSV.replace("oregon", "or\x1begon", 1)]
    corpus += [PROFILE.replace("schema = 1", 'schema = "\\u0000"')]
    fuzz(cases, damaged_text((PROFILE, CSV)), as_profile, [each for text in corpus for each in (text, text)])


TRACE = "time_s,rtt_ms,rate_mbps,loss_pct\n0,80,100,0\n1,90,,0.5\n2.5,,50,\n"
PING = """PING 10.0.0.1 (10.0.0.1) 56(84) bytes of data.
[1700000000.1] 64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=80.1 ms
[1700000001.1] 64 bytes from 10.0.0.1: icmp_seq=2 ttl=64 time=81.2 ms
[1700000002.1] 64 bytes from 10.0.0.1: icmp_seq=4 ttl=64 time=79.9 ms

--- 10.0.0.1 ping statistics ---
4 packets transmitted, 3 received, 25% packet loss, time 3004ms
rtt min/avg/max/mdev = 79.900/80.400/81.200/0.600 ms
"""
MAHIMAHI = "\n".join(str(n) for n in (1, 1, 2, 5, 900, 2000))
FLOW = {"start": 0.0, "end": 1.0, "bits_per_second": 9e7, "rtt": 80000}
IPERF = {
    "start": {"timestamp": {"timesecs": 1700000000}, "connecting_to": {"host": "10.0.0.1", "port": 5201},
              "connected": [{"socket": 5}], "test_start": {"reverse": 0}},
    "intervals": [{"streams": [FLOW], "sum": FLOW}, {"streams": [FLOW], "sum": {**FLOW, "start": 1.0, "end": 2.0}}],
    "end": {"sum_received": {"bits_per_second": 9e7, "seconds": 2.0}, "sum": {"bits_per_second": 9e7, "seconds": 2.0}},
}  # fmt: skip


@CASES
def test_a_damaged_trace_becomes_points_or_is_refused_in_one_line(cases, tmp_path):
    file = tmp_path / "t.csv"

    def as_trace(text: str) -> None:
        file.write_text(text, encoding="utf-8")
        with or_refused(SpecError, where="t.csv"):
            read_trace(file, "timeline.0.trace")
        with or_refused(SpecError, where="t.csv"):
            convert(text, "t.csv").to_csv()

    strategy = damaged_text((TRACE, PING, MAHIMAHI)) | damaged_json(IPERF)
    corpus = ["", "\0", "1\n" * 3000, "9" * 400, "{" * 500, "[" * 500]
    corpus += [PING.replace("4 packets", "400000000000 packets"), PING.replace("seq=4", "seq=400000000000")]
    fuzz(cases, strategy, as_trace, corpus)


@CASES
def test_damaged_output_of_ping_and_iperf3_becomes_a_profile_or_is_refused_in_one_line(cases, tmp_path):
    file = tmp_path / "mine.toml"

    def as_reading(text: str) -> None:
        with or_refused(SpecError, ProfileError):
            readings = read(text, "p.txt", date(2026, 11, 25))
            file.write_text(profile_toml("mine", {("a", "b"): readings}, {}, {}), encoding="utf-8")
            load(str(file))

    corpus = ["", "{", "{" * 500, "[" * 500, "{}", PING.replace("time=80", "time=.80")]
    fuzz(cases, damaged_text((PING,)) | damaged_json(IPERF), as_reading, corpus)
