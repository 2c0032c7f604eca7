"""A job in a process of its own, which can be killed and started again: it alone dies, and its machine lives on.

This process passes what the controller and the trainer say, and obeys the commands to kill and restart. The controller
never sees half a message of a trainer that was killed.
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn

from wanbench.workloads.comm.membership import Minority
from wanbench.workloads.loop.job import Job
from wanbench.workloads.process.control import Channel, ControlError, failure, text
from wanbench.workloads.process.finished import Counters
from wanbench.workloads.process.namespace import die_with_parent
from wanbench.workloads.process.training import RowStream

Train = Callable[[Channel, Job, Counters | None], object]


def run(channel: Channel, job: Job, train: Train, counters: Callable[[], Counters]) -> None:
    """Run a job until the controller says `leave`. It can be killed once all workers are warm.

    `kill` ("again": whether `restart` will follow) and `restart` are answered by "killed" and "restarted", with the
    "due_ns" of the request and "at_ns", the time of the effect. Without an effect there is no answer: the trainer has
    already finished or stopped.

    Args:
        train: runs the job in the trainer's process. Its channel leads to this process. Gets the counters when all
            workers were warm, or None if they are not.
        counters: reads the counters of this machine.

    Raises:
        SystemExit: the controller is gone.
        ControlError: the controller sent another command.
    """
    mortal = _Mortal(channel, job, train, counters)
    faulthandler.unregister(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, mortal.pass_signal)  # the stack that matters is the trainer's
    try:
        mortal.start(job)
        while mortal.obeys():
            pass
    finally:
        mortal.close()
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        faulthandler.register(signal.SIGUSR1, all_threads=False)


class _Mortal:
    def __init__(self, channel: Channel, job: Job, train: Train, counters: Callable[[], Counters]) -> None:
        self._channel, self._job, self._train, self._counters = channel, job, train, counters
        self._rows = RowStream(channel)
        self._before: Counters | None = None
        self._pid: int | None = None
        self._trainer: Channel | None = None
        self._ended = False  # it has said its last word
        self._killed = False  # and will be restarted

    def start(self, job: Job) -> None:
        """Fork a trainer."""
        ours, theirs = socket.socketpair()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            ours.close()
            self._channel.close()
            self._live(parent, Channel(theirs), job)
        theirs.close()
        ours.setblocking(False)  # it can be killed in the middle of a message
        self._trainer = Channel(ours)

    def _live(self, parent: int, channel: Channel, job: Job) -> NoReturn:
        """Be the trainer."""
        status = 1
        try:
            die_with_parent(parent)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGUSR1, signal.SIG_DFL)
            faulthandler.register(signal.SIGUSR1, all_threads=False)
            self._train(channel, job, self._before)
            status = 0
        except Minority as error:
            channel.send({"cmd": "job", "event": "stopped", "reason": str(error)})
            status = 0
        except Exception as error:
            traceback.print_exc()
            channel.send(failure(error))
        finally:
            with suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def pass_signal(self, number: int, frame: object) -> None:
        """Pass a signal to the trainer."""
        if self._pid is not None:
            os.kill(self._pid, number)

    def obeys(self) -> bool:
        """Wait for what is said next, and pass it on or obey it; false after `leave`."""
        channels = [self._channel] if self._trainer is None else [self._channel, self._trainer]
        readable, _, _ = select.select(channels, [], [])
        if self._trainer in readable:
            self._pass_on()
        if self._channel not in readable:
            return True
        while True:
            message = self._channel.recv()
            if message is None:
                raise SystemExit(0)
            if text(message, "cmd") == "leave":
                return False
            self._obey(message)
            if not self._channel.pending():
                return True

    def _obey(self, message: dict[str, Any]) -> None:
        command = message["cmd"]
        if command == "go" and self._trainer is not None:
            self._trainer.send(message)
        elif command == "kill":
            self._obey_kill(message)
        elif command == "restart":
            if self._killed:
                self._killed = False
                self.start(replace(self._job, returned=True))
                self._answer("restarted", message)
        else:
            raise ControlError(
                f"control channel: got {command!r} while a job runs; expected go, kill, restart or leave"
            )

    def _obey_kill(self, message: dict[str, Any]) -> None:
        if self._pid is not None and self._trainer is not None:
            os.kill(self._pid, signal.SIGKILL)
            self._trainer.sock.setblocking(True)
        while self._trainer is not None:  # what it said before counts
            self._pass_on(killed=True)
        if not self._ended and not self._killed:
            self._killed = message["again"]
            self._answer("killed", message, again=message["again"])
            self._ended = not self._killed

    def _answer(self, event: str, message: dict[str, Any], **details: Any) -> None:
        times = {"due_ns": message["due_ns"], "at_ns": time.monotonic_ns()}
        self._say({"cmd": "job", "event": event, **times, **details})

    def _say(self, message: dict[str, Any]) -> None:
        self._rows.flush()
        self._channel.send(message)

    def _pass_on(self, *, killed: bool = False) -> None:
        """Pass on what the trainer says, or note that it has ended."""
        assert self._trainer is not None
        read = True
        while read or self._trainer.pending():
            read = False
            try:
                message = self._trainer.recv()
            except BlockingIOError:  # a part of one
                return
            if message is None:
                self._note_end(killed=killed)
                return
            if message.get("event") == "rows":
                for row in message["rows"]:
                    self._rows.add(row)
                continue
            self._ended = self._ended or "error" in message or message.get("event") in ("finished", "stopped")
            if message.get("event") == "warm":
                self._before = self._counters()
            self._say(message)

    def _note_end(self, *, killed: bool) -> None:
        """The trainer has hung up, which it does when it ends."""
        code = self._wait()
        if not self._ended and not killed:
            how = f"by signal {-code}" if code < 0 else f"with exit status {code}"
            self._ended = True
            self._say({"error": f"its trainer ended {how}", "kind": "TrainerEnded"})

    def _wait(self) -> int:
        """Wait for the end of the trainer. Return its exit status; negative: the signal that ended it."""
        assert self._pid is not None
        assert self._trainer is not None
        self._trainer.close()
        _, status = os.waitpid(self._pid, 0)
        self._trainer = self._pid = None
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        """End the trainer, if it has not ended."""
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
            self._wait()
