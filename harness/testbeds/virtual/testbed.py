"""The simulated clock as a testbed. It starts no process and leaves nothing behind."""

from __future__ import annotations

import threading
import traceback

from wanbench.harness.errors import RepFailed
from wanbench.harness.testbeds.base import Trained, Training
from wanbench.harness.timeline.edits import TimelineError

_LOG_TAIL_LINES = 12


class VirtualTestbed:
    """Runs one simulation at a time, because they share the interpreter. The testbed is its own slot."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._busy = threading.Lock()

    def open_slot(self, emulator: str) -> VirtualTestbed:
        """Return this testbed. It needs no emulator."""
        return self

    def train(self, training: Training) -> Trained:
        """Simulate a training run. Raises: RepFailed, if a worker raised an error, or waits forever for a message."""
        with self._busy:
            return self._simulated(training)

    def kill(self) -> None:
        """End the current simulation."""
        self._stopped.set()

    def close(self) -> None:
        """Wait until the current simulation has ended."""
        with self._busy:
            pass

    def _simulated(self, training: Training) -> Trained:
        # Importing torch takes seconds. Here the user can interrupt it.
        from wanbench.harness.testbeds.virtual.changing import ChangingNetwork
        from wanbench.harness.testbeds.virtual.kernel import SimulationError, Stopped
        from wanbench.harness.testbeds.virtual.simulate import simulate
        from wanbench.harness.testbeds.virtual.tcp import Tcp

        settings = dict(training.group.tcp)
        idle, congestion = bool(settings.get("slow_start_after_idle", True)), str(settings.get("congestion", "reno"))
        tcp = Tcp(training.tcp_ramp, idle, congestion)
        changing = ChangingNetwork(training.schedule) if training.schedule is not None else None
        try:
            done = simulate(training.jobs, training.network, tcp, stopped=self._stopped, changing=changing)
        except SimulationError as error:
            lines = "".join(traceback.format_exception(error.__cause__ or error)).splitlines()
            reason = "; ".join(filter(None, [f"worker {error.rank}: {error}", changing.cut_off() if changing else ""]))
            raise RepFailed(reason, tuple(lines[-_LOG_TAIL_LINES:])) from error
        except TimelineError as error:
            raise RepFailed(str(error)) from None
        except Stopped:
            raise RepFailed("stopped") from None
        finished = {rank: {"outcome": vars(outcome)} for rank, outcome in enumerate(done.outcomes)}
        return Trained(done.steps, finished, vars(tcp), timeline=changing.record() if changing else None)
