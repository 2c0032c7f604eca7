"""A worker in a container: it connects to the controller's socket, gives up its rights and serves.

    python3 -m wanbench.workloads.process.container --socket PATH [--name NAME] [--programs]

With --programs it will not train, so it does without torch.

The container starts without a network. If the worker opens a TUN device, the container starts as root with NET_ADMIN,
SETUID and SETGID. The worker gives these up for good before it reports that it is ready.

There is no parent-death signal across containers. A thread watches the control socket instead, and ends the process
when the controller ends, even in the middle of work.
"""

import argparse
import hashlib
import importlib
import os
import select
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from wanbench.workloads import imported
from wanbench.workloads.process import isolation
from wanbench.workloads.process.control import Channel, dial, text
from wanbench.workloads.process.namespace import become_user

PATIENCE_S = 60.0  # maximum time to wait for a controller
REPLACED = 75  # exit status: the controller is alive but hung up, because it wants a new worker
_RETRY_S = 0.1
_DYING_S = 0.3
_IMPORT_NICE = 10
_PACKAGES = Path(__file__).resolve().parents[2]


def main() -> None:
    """Run the process."""
    parser = argparse.ArgumentParser(prog="wanbench.workloads.process.container")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--name", default=socket.gethostname())
    parser.add_argument("--programs", action="store_true")
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the controller handles Ctrl-C
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))  # PID 1 ignores SIGTERM without a handler
    imported.record()
    sock = _await_controller(arguments.socket)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(sock, wake_read, arguments.socket), daemon=True).start()
    with suppress(ConnectionError):
        _serve(Channel(sock), arguments.name, trains=not arguments.programs)
    _leave(arguments.socket)


def own_code() -> str:
    """Return the hash of the worker's code, which must be the same in the controller and in the image."""
    digest = hashlib.sha256()
    for package in ("workloads", "netprofiles"):
        for path in sorted((_PACKAGES / package).rglob("*.py")):
            digest.update(path.relative_to(_PACKAGES).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def boot_id() -> str:
    """Return the kernel's boot ID, the same for all processes of a running kernel, also in containers."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _serve(channel: Channel, name: str, *, trains: bool) -> None:
    """Report to the controller, receive the assignment, then serve until end of file."""
    channel.send({"cmd": "hello", "name": name, "code": own_code(), "boot": boot_id()})
    try:
        if trains:
            importing = threading.Thread(target=_import_in_the_background)
            importing.start()
            importing.join()
            import torch

            torch.set_num_threads(1)
        from wanbench.workloads.process import worker

        assignment = channel.recv()
        if assignment is None:
            return
        if not isolation.owns_processes():
            raise RuntimeError("the worker is not process 1 of its container; start it without init and pid settings")
        if assignment["hosts"]:
            isolation.write_hosts({socket.gethostname(): assignment["address"]} | assignment["hosts"])
        address, congestion = text(assignment, "address"), assignment["congestion"]
        descriptor, routed = worker.open_attachment(
            text(assignment, "attachment"), address, congestion, assignment["mtu"]
        )
        become_user(assignment["uid"], assignment["gid"])
    except (ImportError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        lacks = isinstance(error, ImportError)
        needs = " in its image; expected an image with Python 3.11 or newer, torch and numpy" if lacks else ""
        channel.send({"error": f"{error}{needs}", "kind": type(error).__name__})
        sys.exit(1)
    channel.send({"cmd": "ready", "address": address}, fds=[descriptor])
    os.close(descriptor)
    worker.serve(channel, address, routed)


def _import_in_the_background() -> None:
    """Import with low priority, because other workers may be measuring. Only this thread keeps the low priority."""
    os.setpriority(os.PRIO_PROCESS, 0, _IMPORT_NICE)
    with suppress(ImportError):  # the main thread tries again and reports it
        from wanbench.workloads.process.worker import TRAINING

        importlib.import_module(TRAINING)


def _await_controller(path: Path) -> socket.socket:
    """Connect to the controller, which can start later than this worker."""
    deadline = time.monotonic() + PATIENCE_S
    while (sock := _connected(path)) is None:
        if time.monotonic() > deadline:
            print(f"{path}: no controller answered within {PATIENCE_S:.0f} s", flush=True)
            sys.exit(0)
        time.sleep(_RETRY_S)
    return sock


def _connected(path: Path) -> socket.socket | None:
    """Connect as the owner of the socket's folder: root without capabilities cannot enter another user's folder."""
    before = os.geteuid()
    try:
        if before == 0:
            os.seteuid(path.parent.stat().st_uid)
        return dial(path)
    except OSError:
        return None
    finally:
        os.seteuid(before)


def _watch(sock: socket.socket, signals: int, path: Path) -> None:
    """End this process when its controller ends, or at once on SIGTERM, even while the main thread is in C code."""
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    poll.register(signals, select.POLLIN)
    while True:
        ready = [fd for fd, _ in poll.poll()]
        if signals in ready and signal.SIGTERM in os.read(signals, 4096):
            os._exit(128 + signal.SIGTERM)
        if sock.fileno() in ready:
            _leave(path)


def _leave(path: Path) -> NoReturn:
    """Exit, with status REPLACED if the controller is still alive, so that the container can be restarted."""
    time.sleep(_DYING_S)  # a killed controller closes its sockets one after another
    os._exit(0 if _connected(path) is None else REPLACED)


if __name__ == "__main__":
    main()
