"""From ping and iperf3 to advice, and from advice to plain torchrun, on networks that wanbench did not make.

    sh scripts/uml-run.sh --timeout 7200 .venv/bin/python benchmarks/blind_chain.py [--out build/blind-chain]

Needs root, the kernel's netem, ping and iperf3. Each network is drawn at random and built with `ip` and `tc`: two to
four sites, with a queue for each path, or an uplink for each site. The last network also loses packets on one path, and
the measured loss is checked against the interval of the pings. `wanbench measure` sees the output of ping and
iperf3 only. `wanbench advise` reads the profile that it writes. Then torchrun runs trial.py on the network, and its
step time is compared with the predicted one. What is finished is kept, so the same command continues.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations, permutations
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from wanbench.netprofiles import load

_BIN = Path(sys.executable).parent
_TRIAL_S = 40
_FLOWS, _IPERF_S = 4, 6
_PORT = 5201
_LOSSY = 10  # the number of the network with loss; those before it are as they were recorded


@dataclass(frozen=True)
class Network:
    """What is hidden: for each path of two sites its round trip in ms and its Mbit/s, or Mbit/s of each uplink.

    `loss_pct` is that of each direction of the path between the first two sites.
    """

    sites: int
    rtts_ms: Mapping[tuple[int, int], float]
    path_mbit: Mapping[tuple[int, int], float] | None
    uplink_mbit: Sequence[float] | None
    workload: str
    loss_pct: float = 0.0


def drawn(number: int) -> Network:
    """Draw a network and a workload; the same number is always the same."""
    random = Random(f"blind {number}")

    def between(low: float, high: float) -> float:
        return float(f"{low * (high / low) ** random.random():.3g}")

    sites, scale, mbit = random.randint(2, 4), between(20, 250), between(20, 200)
    pairs = list(combinations(range(sites), 2))
    rtts = {pair: round(scale * random.uniform(0.4, 1), 1) for pair in pairs}
    by_path = number % 2 == 0
    return Network(
        sites,
        rtts,
        {pair: round(mbit * random.uniform(0.5, 1), 1) for pair in pairs} if by_path else None,
        None if by_path else [round(mbit * random.uniform(0.5, 1), 1) for _ in range(sites)],
        f"params={int(between(3e4, 1e6))},tensors=4,step_time={between(40, 300):g}ms",
        loss_pct=1.0 if number == _LOSSY else 0.0,
    )


def sh(line: str) -> None:
    """Run a command that must succeed."""
    done = subprocess.run(line.split(), check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{line}: {done.stderr.strip()}")


def host(site: int) -> str:
    """The address of a site's host."""
    return f"10.9.{site + 1}.1"


@contextmanager
def built(network: Network) -> Iterator[None]:
    """Build a network: a namespace for each site, and a wire for each path, or one to a router with an uplink."""
    names = [*(f"site{site}" for site in range(network.sites)), "router"]
    try:
        for name in names:
            sh(f"ip netns add {name}")
            sh(f"ip -n {name} link set lo up")
        for site in range(network.sites):
            sh(f"ip -n site{site} link add net0 type bridge")  # has the address, whatever the number of wires
            sh(f"ip -n site{site} link set net0 up")
            sh(f"ip -n site{site} address add {host(site)}/32 dev net0")
        if network.path_mbit is not None:
            for (a, b), mbit in network.path_mbit.items():
                _wire(a, b, network.rtts_ms[a, b], mbit, network.loss_pct if (a, b) == (0, 1) else 0.0)
        else:
            assert network.uplink_mbit is not None
            sh("ip netns exec router sysctl -qw net.ipv4.ip_forward=1")
            for site, mbit in enumerate(network.uplink_mbit):
                _uplink(network, site, mbit)
        yield
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def _wire(a: int, b: int, rtt_ms: float, mbit: float, loss_pct: float) -> None:
    """A wire with half of the round trip, the rate and the loss in each direction."""
    netem = f"delay {rtt_ms / 2}ms rate {mbit}mbit limit 2000" + (f" loss {loss_pct}%" if loss_pct else "")
    sh(f"ip link add w{a}{b} netns site{a} type veth peer name w{b}{a} netns site{b}")
    for here, there in ((a, b), (b, a)):
        name = f"w{here}{there}"
        sh(f"ip -n site{here} link set {name} up")
        sh(f"tc -n site{here} qdisc add dev {name} root netem {netem}")
    for here, there in ((a, b), (b, a)):
        sh(f"ip -n site{here} route add {host(there)} dev w{here}{there} src {host(here)} congctl cubic")


def _uplink(network: Network, site: int, mbit: float) -> None:
    """A wire to the router with the uplink's rate, and in the router a delay for each other site."""
    sh(f"ip link add wan netns site{site} type veth peer name to{site} netns router")
    sh(f"ip -n site{site} link set wan up")
    sh(f"ip -n router link set to{site} up")
    sh(f"tc -n site{site} qdisc add dev wan root netem rate {mbit}mbit limit 2000")
    sh(f"ip -n router route add {host(site)} dev to{site}")
    sh(f"ip -n router address add 10.9.{site + 1}.254/32 dev to{site}")
    sh(f"ip -n site{site} route add 10.9.{site + 1}.254 dev wan src {host(site)}")
    others = [other for other in range(network.sites) if other != site]
    for other in others:
        sh(f"ip -n site{site} route add {host(other)} via 10.9.{site + 1}.254 dev wan src {host(site)} congctl cubic")
    sh(f"tc -n router qdisc add dev to{site} root handle 1: htb")
    for band, other in enumerate(others, start=1):
        rtt_ms = network.rtts_ms[min(site, other), max(site, other)]
        sh(f"tc -n router class add dev to{site} parent 1: classid 1:{band} htb rate 10gbit")
        sh(f"tc -n router qdisc add dev to{site} parent 1:{band} netem delay {rtt_ms / 2}ms limit 20000")
        from_other = f"u32 match ip src {host(other)}/32 flowid 1:{band}"
        sh(f"tc -n router filter add dev to{site} parent 1: protocol ip {from_other}")


def at(site: int, *command: str, **options: Any) -> subprocess.Popen[str]:
    """Start a command on a site's host."""
    return subprocess.Popen(["ip", "netns", "exec", f"site{site}", *command], text=True, **options)


def output(process: subprocess.Popen[str], timeout_s: float = 180) -> str:
    """Wait for a command, and return its output."""
    return process.communicate(timeout=timeout_s)[0]


def measured(network: Network, folder: Path) -> Path:
    """Measure a network by ping and iperf3, alone and at once, and write a profile."""
    sources = []
    for a, b in combinations(range(network.sites), 2):
        file = folder / f"ping-{a}-{b}.txt"
        pings = ("-c", "2000", "-i", "0.02") if network.loss_pct else ("-c", "30", "-i", "0.2")
        file.write_text(output(at(a, "ping", "-n", *pings, host(b), stdout=subprocess.PIPE)))
        sources.append(f"s{a},s{b}={file}")
    servers = [
        at(b, "iperf3", "-s", "-p", str(_PORT + a), stdout=subprocess.DEVNULL)
        for a, b in permutations(range(network.sites), 2)
    ]
    time.sleep(1)
    try:
        for a, b in permutations(range(network.sites), 2):
            file = folder / f"iperf-{a}-{b}.json"
            file.write_text(_iperf(a, [b])[0])
            sources.append(f"s{a},s{b}={file}")
        for a in range(network.sites) if network.sites > 2 else ():
            others = [b for b in range(network.sites) if b != a]
            for b, text in zip(others, _iperf(a, others), strict=True):
                file = folder / f"at-once-{a}-{b}.json"
                file.write_text(text)
                sources.append(f"s{a}={file}")
    finally:
        for server in servers:
            server.kill()
            server.wait()
    profile = folder / "measured.toml"
    profile.unlink(missing_ok=True)
    subprocess.run([_BIN / "wanbench", "measure", *sources, "-o", profile], check=True, stdout=subprocess.DEVNULL)
    _check_loss(network, profile)
    return profile


def _check_loss(network: Network, profile: Path) -> None:
    """Stop if the measured loss of the first path is not that of netem, within what 2000 pings can tell."""
    path = load(str(profile)).path("s0", "s1")
    lost = 1 - (1 - path.loss.value) ** 2
    expected = 1 - (1 - network.loss_pct / 100) ** 2
    if abs(lost - expected) > 4 * math.sqrt(expected * (1 - expected) / 2000):
        raise SystemExit(f"{profile}: {100 * lost:.3g} % of round trips lost, expected {100 * expected:.3g} %")


def _iperf(a: int, others: Sequence[int]) -> list[str]:
    options = ("-J", "-t", str(_IPERF_S), "-O", "2", "-P", str(_FLOWS), "-p", str(_PORT + a))
    for _ in range(5):
        running = [at(a, "iperf3", "-c", host(b), *options, stdout=subprocess.PIPE) for b in others]
        texts = [output(each) for each in running]
        if not any("error" in json.loads(text) for text in texts):
            break
        time.sleep(3)  # the server is busy until what is in the queues has arrived
    return texts


def advised(network: Network, profile: Path, folder: Path) -> tuple[Path, Mapping[str, Any]]:
    """Ask for advice. Return the folder of its run, and the answer."""
    question = ["advise", str(profile), "--workload", network.workload, "--emulate", "0"]
    command = [str(_BIN / "wanbench"), *question, "--json", "--out", str(folder / "results")]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    (found,) = (folder / "results").glob("advise-*")
    return found, json.loads(run.stdout)


def tried(network: Network, run: Path) -> float:
    """Run trial.py under torchrun on each host. Return the seconds of a step."""
    text = (run / "trial.py").read_text()
    assert "SECONDS = 300" in text
    (run / "trial.py").write_text(text.replace("SECONDS = 300", f"SECONDS = {_TRIAL_S}"))
    options = ("--nnodes", str(network.sites), "--nproc-per-node", "1", "--master-addr", host(0))
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "net0", "OMP_NUM_THREADS": "1"}
    with (run / "trial.log").open("w") as log:
        ranks = [
            at(
                site, str(_BIN / "torchrun"), *options, "--node-rank", str(site), "trial.py",
                cwd=run, env=environment, stdout=log, stderr=log,
            )
            for site in range(network.sites)
        ]  # fmt: skip
        codes = [rank.wait(timeout=600) for rank in ranks]
    if any(codes):
        raise SystemExit(f"{run / 'trial.log'}: the trial failed: {(run / 'trial.log').read_text()[-2000:]}")
    return fmean(json.loads(line)["seconds"] for line in (run / "steps.jsonl").read_text().splitlines())


def chain(number: int, out: Path) -> dict[str, Any]:
    """Measure, ask and try. Return a line of the table."""
    network, folder = drawn(number), out / f"network-{number:02d}"
    done = folder / "line.json"
    if done.is_file():
        return dict(json.loads(done.read_text()))
    folder.mkdir(parents=True, exist_ok=True)
    with built(network):
        profile = measured(network, folder)
        run, answer = advised(network, profile, folder)
        took_s = tried(network, run)
    expected_s = answer["advised"]["step_time_s"]
    line = {
        "network": number,
        "sites": network.sites,
        "rtts_ms": " ".join(f"{rtt:g}" for rtt in network.rtts_ms.values()),
        "mbit": " ".join(f"{mbit:g}" for mbit in (network.path_mbit or {}).values() or network.uplink_mbit or []),
        "limited": "paths" if network.path_mbit else "uplinks",
        "workload": network.workload,
        "advised": f"{answer['advised']['algorithm']} on {answer['advised']['collective']}",
        "predicted_s": expected_s,
        "torchrun_s": took_s,
        "off_pct": round(100 * (took_s / expected_s - 1), 2),
    }
    done.write_text(json.dumps(line))
    return line


def main() -> None:
    """Go through the chain on each network, and print what differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/blind-chain"), help="folder of the measurements")
    parser.add_argument("--networks", type=int, default=_LOSSY + 1)
    asked = parser.parse_args()
    lines = []
    for number in range(asked.networks):
        lines.append(chain(number, asked.out.absolute()))
        print(*lines[-1].values(), flush=True)
    with (asked.out / "blind-chain.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(lines[0]))
        table.writeheader()
        table.writerows(lines)
    near, farthest = sum(abs(line["off_pct"]) <= 10 for line in lines), max(abs(line["off_pct"]) for line in lines)
    print(f"{near} of {len(lines)} predicted within 10 %; the farthest {farthest:.1f} % off")


if __name__ == "__main__":
    main()
