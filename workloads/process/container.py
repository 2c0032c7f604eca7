"""A worker that lives in a container: reports to the controller's socket, gives up its rights, serves.

    python3 -m wanbench.workloads.process.container --socket PATH [--name NAME]

The container has no network of its own. Where the worker opens a TUN device the container starts as root with
NET_ADMIN, SETUID and SETGID, which are gone for good before the controller hears that the worker is ready.

There is no parent-death signal across containers: a thread watches the control socket, and the process ends when the
controller does, whatever it is doing.
"""

from __future__ import annotations

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

from wanbench.workloads.process.control import Channel, short_name, text
from wanbench.workloads.process.namespace import become_user

PATIENCE_S = 60.0  # without a controller
REPLACED = 75  # the controller lives and hung up: it wants another worker in place of this one
_RETRY_S = 0.1
_DYING_S = 0.3
_IMPORT_NICE = 10
_PACKAGES = Path(__file__).resolve().parents[2]


def main() -> None:
    """Entry of the process."""
    parser = argparse.ArgumentParser(prog="wanbench.workloads.process.container")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--name", default=socket.gethostname())
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the controller decides what Ctrl-C means
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))  # the kernel spares a PID 1 without it
    sock = _await_controller(arguments.socket)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(sock, wake_read, arguments.socket), daemon=True).start()
    with suppress(ConnectionError):
        _serve(Channel(sock), arguments.name)
    _leave(arguments.socket)


def own_code() -> str:
    """Hash of the code that a worker runs: controller and image must have the same."""
    digest = hashlib.sha256()
    for package in ("workloads", "netprofiles"):
        for path in sorted((_PACKAGES / package).rglob("*.py")):
            digest.update(path.relative_to(_PACKAGES).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def boot_id() -> str:
    """The same for all processes of one running kernel, in containers or not."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _serve(channel: Channel, name: str) -> None:
    """Say hello, take up the part that the controller gives this worker, obey until end of file."""
    channel.send({"cmd": "hello", "name": name, "code": own_code(), "boot": boot_id()})
    try:
        importing = threading.Thread(target=_import_in_the_background)
        importing.start()
        importing.join()
        import torch

        from wanbench.workloads.process import worker

        torch.set_num_threads(1)
        part = channel.recv()
        if part is None:
            return
        descriptor = worker.open_attachment(text(part, "attachment"), text(part, "address"))
        become_user(part["uid"], part["gid"])
    except (ImportError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        channel.send({"error": str(error), "kind": type(error).__name__})
        sys.exit(1)
    channel.send({"cmd": "ready", "pid": os.getpid(), "address": part["address"]}, fds=[descriptor])
    os.close(descriptor)
    worker.serve(channel, part["address"])


def _import_in_the_background() -> None:
    """A second of computing, of low priority: others may be measuring. Priority belongs to a thread and cannot rise."""
    os.setpriority(os.PRIO_PROCESS, 0, _IMPORT_NICE)
    with suppress(ImportError):  # said by the main thread, which tries again
        importlib.import_module("wanbench.workloads.process.worker")


def _await_controller(path: Path) -> socket.socket:
    """A connection to the controller, which may come up later than this worker."""
    deadline = time.monotonic() + PATIENCE_S
    while (sock := _connected(path)) is None:
        if time.monotonic() > deadline:
            print(f"no controller at {path} within {PATIENCE_S:.0f} s", flush=True)
            sys.exit(0)
        time.sleep(_RETRY_S)
    return sock


def _connected(path: Path) -> socket.socket | None:
    """Connect as the owner of the socket's folder: root without capabilities may not enter the folder of another."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.geteuid()
    try:
        if before == 0:
            os.seteuid(path.parent.stat().st_uid)
        with short_name(path) as name:
            sock.connect(name)
    except OSError:
        sock.close()
        return None
    finally:
        os.seteuid(before)
    return sock


def _watch(sock: socket.socket, signals: int, path: Path) -> None:
    """End this process with its controller, and at once on SIGTERM, also while the main thread is in C code."""
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
    """End: with REPLACED if the controller is still there, so that a container may be restarted by its status."""
    time.sleep(_DYING_S)  # a controller that is killed closes its sockets one after the other
    os._exit(0 if _connected(path) is None else REPLACED)


if __name__ == "__main__":
    main()
