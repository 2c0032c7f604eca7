"""Describe how a container ended."""

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
    """Return the rest of a sentence that begins with "worker 3". Waits while a daemon restarts."""
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
    return f" {_cause(state, memory_bytes)}; the Docker daemon was unavailable in the meantime"


def _final(daemon: Daemon, container: str) -> dict[str, Any] | None:
    """Return its state after waiting for its end, or None if it was removed."""
    deadline = time.monotonic() + _EXIT_TIMEOUT_S
    while (state := daemon.state(container)) is not None and state["Running"] and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    if state is not None and state["ExitCode"] == 128 + signal.SIGKILL:  # `docker rm --force` kills first
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
