"""An emulator's process can hang at any time, and closing it does not wait for its answer."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from wanbench.harness.emulators.emulator import EmulatorError, RelayEmulator


def test_an_emulator_that_hangs_is_closed_at_once_while_another_thread_waits_for_its_answer():
    emulator = RelayEmulator()
    os.kill(emulator.pid, signal.SIGSTOP)
    errors = []

    def ask():
        with pytest.raises(EmulatorError) as raised:
            emulator.stats()
        errors.append(str(raised.value))

    asking = threading.Thread(target=ask)
    asking.start()
    while not emulator._lock.locked():
        time.sleep(0.01)
    began = time.monotonic()
    emulator.close()
    took_s = time.monotonic() - began
    asking.join()
    assert took_s < emulator.patience_s / 2
    assert errors == ["relay: the emulator was closed"]
