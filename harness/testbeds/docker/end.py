"""How a container ended, in words."""

from __future__ import annotations

import signal
import time
from typing import Any

from docker.errors import APIError

from wanbench.harness.errors import HostError
from wanbench.harness.testbeds.docker.daemon import Daemon, DaemonGone
from wanbench.netprofiles import Size

_EXIT_TIMEOUT_S = 3.0
_LOOK_S = 0.05
_REMOVAL_S = 0.5


def how_it_ended(daemon: Daemon, container: str, memory_bytes: int | None) -> str:
    """The predicate to "worker 3", with a space before it; asks again while a daemon restarts."""
    try:
        return f" {_cause(_final(daemon, container), memory_bytes)}"
    except DaemonGone:
        pass
    except APIError:
        return " hung up"
    try:
        state = daemon.patiently(lambda: daemon.state(container))
    except (HostError, APIError):
        return " hung up, and the Docker daemon does not answer"
    return f" {_cause(state, memory_bytes)}; the Docker daemon was away meanwhile"


def _final(daemon: Daemon, container: str) -> dict[str, Any] | None:
    """Its state once it has ended, or as it is if it does not; None if someone removes it."""
    deadline = time.monotonic() + _EXIT_TIMEOUT_S
    while (state := daemon.state(container)) is not None and state["Running"] and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    if state is not None and state["ExitCode"] == 128 + signal.SIGKILL:  # `docker rm --force` begins like that
        time.sleep(_REMOVAL_S)
        state = daemon.state(container)
    return None if state is not None and state["Status"] in ("removing", "dead") else state


def _cause(state: dict[str, Any] | None, memory_bytes: int | None) -> str:
    if state is None:
        return "was lost: someone removed its container"
    if state["OOMKilled"]:
        limit = f": its container is limited to {Size(memory_bytes)}" if memory_bytes else ""
        return f"ran out of memory{limit}"
    if state["Running"]:
        return "hung up"
    code = int(state["ExitCode"])
    if code > 128 and code - 128 in {int(number) for number in signal.Signals}:
        return f"was killed by {signal.Signals(code - 128).name}"
    return f"exited with status {code}"
