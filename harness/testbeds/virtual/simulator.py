"""Simulates training runs; as a process, one after the other."""

from __future__ import annotations

import socket
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any

from wanbench.harness.errors import RepFailed
from wanbench.harness.testbeds.base import Trained
from wanbench.harness.testbeds.virtual.changing import ChangingNetwork
from wanbench.harness.testbeds.virtual.kernel import SimulationError, Stopped
from wanbench.harness.testbeds.virtual.request import Request
from wanbench.harness.testbeds.virtual.simulate import simulate
from wanbench.harness.timeline.edits import TimelineError
from wanbench.workloads import imported
from wanbench.workloads.process.finished import Counters, FinishedJob

_LOG_TAIL_LINES = 12
_NOTHING = Counters({}, {}, 0, None)


def simulated(request: Request, stopped: threading.Event | None = None) -> Trained:
    """Simulate a training run.

    Args:
        stopped: any thread can set this to end it.

    Raises:
        RepFailed: a worker raised an error, or waits forever for a message.
    """
    changing = ChangingNetwork(request.schedule) if request.schedule is not None else None
    try:
        done = simulate(request.jobs, request.network, request.tcp, stopped=stopped, changing=changing)
    except SimulationError as error:
        lines = "".join(traceback.format_exception(error.__cause__ or error)).splitlines()
        reason = "; ".join(filter(None, [f"worker {error.rank}: {error}", changing.cut_off() if changing else ""]))
        raise RepFailed(reason, tuple(lines[-_LOG_TAIL_LINES:])) from error
    except TimelineError as error:
        raise RepFailed(str(error)) from None
    except Stopped:
        raise RepFailed("stopped") from None
    imports = imported.noted()
    finished = {
        rank: FinishedJob(outcome=outcome, imports=imports, lost=[], counters_before=_NOTHING, counters_after=_NOTHING)
        for rank, outcome in sorted(done.outcomes.items())
    }
    return Trained(done.steps, finished, vars(request.tcp), timeline=changing.record() if changing else None)


def serve_forked(sock: socket.socket, _: dict[str, Any]) -> None:
    """Answer every `Request` with what was `Trained`, or with `RepFailed`, until end of file."""
    connection = Connection(sock.detach())
    while True:
        try:
            request = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer: Trained | RepFailed = simulated(request)
        except RepFailed as error:
            answer = error
        sys.stdout.flush()  # what a user's code printed appears with its repetition
        sys.stderr.flush()
        connection.send(answer)
