"""Run ping and iperf3 against live hosts."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from wanbench.harness.errors import HostError

_PINGS, _PING_INTERVAL_S = 50, "0.2"
_IPERF_S = 10
_TRIES, _PAUSE_S = 6, 2.0


def ping(host: str) -> str:
    """Return the output of ping. Raises: HostError."""
    return _output(["ping", "-n", "-c", str(_PINGS), "-i", _PING_INTERVAL_S, host])


def iperf3(hosts: Sequence[str], flows: int, *, back: bool) -> list[str]:
    """Run iperf3 to all hosts at once, `flows` flows to each, and return its output for each of them.

    All begin again if a server is busy: it ends a measurement only when the data in the queues has arrived.

    Args:
        back: the hosts send.

    Raises:
        HostError: iperf3 is not installed, or it failed.
    """
    options = ["-J", "-t", str(_IPERF_S), "-O", "2", "-P", str(flows), *(["-R"] if back else [])]
    outputs: list[str] = []
    with ThreadPoolExecutor(len(hosts)) as pool:
        for attempt in range(_TRIES):
            time.sleep(_PAUSE_S if attempt else 0)
            outputs = list(pool.map(_output, (["iperf3", "-c", host, *options] for host in hosts)))
            if not any("the server is busy" in output for output in outputs):
                break
    return outputs


def _output(command: Sequence[str]) -> str:
    about = f"{command[0]} {command[-1] if command[0] == 'ping' else command[2]}"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except FileNotFoundError:
        package = {"ping": "iputils-ping", "iperf3": "iperf3"}[command[0]]
        raise HostError(f"{command[0]}: not installed; run: sudo apt-get install {package}") from None
    except subprocess.TimeoutExpired:
        raise HostError(f"{about}: it did not end within 120 s") from None
    if done.returncode != 0 and not done.stdout.strip().startswith("{"):
        last_line = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no answer"]
        raise HostError(f"{about}: {last_line[0]}")
    return done.stdout
