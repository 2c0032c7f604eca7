"""Run a command on another worker, as `ssh HOST COMMAND` would: for programs that start their own processes.

    python3 -m wanbench.workloads.process.agent FOLDER HOST COMMAND...

Every worker has a Unix socket in FOLDER, with its host name. The command runs in that worker's network, with the
environment of the worker's own processes, and with the input and outputs of the caller.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from wanbench.workloads.process.control import Channel, ControlError, dial

_PATIENCE_S = 30.0
_OPTIONS_WITH_VALUE = "bcDEeFIiJLlmOopQRSWw"  # of ssh


def main(arguments: Sequence[str]) -> int:
    """Run the command, and return its exit status."""
    folder, rest = Path(arguments[0]), list(arguments[1:])
    while rest and rest[0].startswith("-"):  # options for ssh
        option = rest.pop(0)
        if len(option) == 2 and option[1] in _OPTIONS_WITH_VALUE and rest:
            rest.pop(0)
    if len(rest) < 2:
        return _refused("expected HOST COMMAND...")
    host, hosts = rest[0].rpartition("@")[2], os.environ.get("WANBENCH_HOSTS", "").split(",")
    if host not in hosts:
        return _refused(f"{host}: no such worker; expected one of {', '.join(hosts)}")
    try:
        channel = Channel(dial(folder / host, _PATIENCE_S))  # the worker can start later
        channel.send({"command": " ".join(rest[1:])}, fds=[0, 1, 2])
        answer = channel.recv()
    except OSError as error:
        return _refused(f"{host}: {error.strerror}")
    if answer is None or "error" in answer:
        return _refused(f"{host}: {answer['error'] if answer else 'the worker ended'}")
    return int(answer["code"])


def _refused(reason: str) -> int:
    """Print the reason, and return the exit status of an ssh that could not run a command."""
    print(f"wanbench agent: {reason}", file=sys.stderr)
    return 255


def serve(environment: Mapping[str, str], cwd: str, caller: socket.socket) -> None:
    """Run the command of one caller. It is killed if the caller ends."""
    channel = Channel(caller)
    try:
        request = channel.recv()
        if request is None:
            return
        with ExitStack() as files:
            given, out, err = (files.enter_context(open(channel.take_fd(), "rb", buffering=0)) for _ in range(3))
            process = subprocess.Popen(
                ["/bin/sh", "-c", str(request["command"])],
                stdin=given,
                stdout=out,
                stderr=err,
                env=dict(environment),
                cwd=cwd,
                start_new_session=True,
            )
        watching = threading.Thread(target=_watch, args=(channel, process), daemon=True)
        watching.start()
        try:
            process.returncode = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
        except ChildProcessError:  # a kill of the timeline has waited for it, for which Popen.wait returns 0
            process.returncode = -signal.SIGKILL
        _answer(channel, {"code": process.returncode if process.returncode >= 0 else 128 - process.returncode})
        with suppress(OSError):
            channel.sock.shutdown(socket.SHUT_RDWR)
        watching.join()
    except (ControlError, KeyError) as error:
        _answer(channel, {"error": str(error)})
    except OSError as error:
        _answer(channel, {"error": f"{error.filename or 'cannot run'}: {error.strerror}"})
    finally:
        channel.close()


def _watch(channel: Channel, process: subprocess.Popen[bytes]) -> None:
    """Kill the processes of a caller that has ended."""
    with suppress(ControlError, OSError):
        if channel.recv() is None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def _answer(channel: Channel, message: dict[str, Any]) -> None:
    with suppress(OSError):
        channel.send(message)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
