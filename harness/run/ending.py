"""How a run ends: on a signal, and without leaving its private folder."""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wanbench.harness.process.owner import write_mark
from wanbench.harness.run.host import sweep_stale


@contextmanager
def control_folder() -> Iterator[Path]:
    """A private folder for rendezvous files and logs. It is removed at the end, or after a crash by the next run."""
    sweep_stale()
    folder = Path(tempfile.mkdtemp(prefix="wanbench-"))
    try:
        write_mark(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def stoppable() -> Iterator[threading.Event]:
    """Turn SIGINT and SIGTERM into an event. SIGINT needs a handler: background jobs inherit it ignored.

    Only the main thread gets signals. In another one, the caller decides what they do.
    """
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = {s: signal.signal(s, lambda *_: event.set()) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
