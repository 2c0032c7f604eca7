"""Programs that start immediately: forked from a process that has imported what `wanbench` imports.

Python, torch and pandas take seconds of processor time to start, and most tests are about what comes after. A forked
program has a session, a folder, files, an environment and processors of its own, and is killed like any other. The
processes that it starts for workers and for users' code are forked from it, because they import torch too.
As a program, this is that process, or `wanbench` for a shell, which starts as quickly.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

LIBRARIES = (
    "torch", "pandas", "pyarrow.dataset", "pyarrow.pandas_compat", "pyarrow.parquet", "scipy.stats", "sklearn.datasets",
    "matplotlib.backends.backend_pdf", "matplotlib.backends.backend_svg", "fontTools.subset",
)  # fmt: skip
ALL = (
    *LIBRARIES,
    "wanbench.harness.api",
    "wanbench.harness.cli.run_command",
    "wanbench.harness.show.figures",
    "wanbench.harness.show.best",
    "wanbench.harness.testbeds.netns",
    "wanbench.harness.testbeds.virtual.simulate",
)
_MOST_BYTES = 1 << 17
_FORKED = ("wanbench.harness.process.apart", "wanbench.workloads.process.forkserver")
_BEFORE: list[object] = []
_MOST_FILES = 4096
_HIGH = 200  # above all files of the process that forks
WANBENCH = "from wanbench.entry import main; main()"
# Before code that imports wanbench from a folder, perhaps another version: torch imports the installed one too.
OF_THE_FOLDER = """
import sys
for name in [name for name in sys.modules if name.partition(".")[0] == "wanbench"]:
    del sys.modules[name]
sys.path.insert(0, {folder!r})
"""


@functools.cache
def _address(imported: tuple[str, ...] = ALL) -> Path:
    """Start the process that forks, and return its socket; it ends with this one."""
    import atexit
    import subprocess
    import tempfile

    folder = tempfile.TemporaryDirectory(prefix="wanbench-warm-")
    path = Path(folder.name, "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        server = subprocess.Popen(
            [sys.executable, "-P", __file__, "serve", str(listener.fileno()), *imported],
            pass_fds=[listener.fileno()],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
    atexit.register(folder.cleanup)
    atexit.register(server.communicate)
    return path


def path(folder: Path | None = None) -> str:
    """Return the path of a shell on which such a `wanbench` comes first, then the other programs of the tests.

    Args:
        folder: of another version of wanbench, such as a clone.
    """
    address = _address() if folder is None else _address(LIBRARIES)
    command = address.with_name("wanbench")
    text = f'#!/bin/sh\nexec {sys.executable} -IS {__file__} run {address} {folder or ""} -- "$@"\n'
    if not command.exists() or command.read_text() != text:
        command.write_text(text)
        command.chmod(0o755)
    return os.pathsep.join([str(command.parent), str(Path(sys.executable).parent), os.environ["PATH"]])


class Warm:
    """A started `python -P -c CODE ARGUMENTS` in a new session, with what tests need of `subprocess.Popen`.

    Args:
        out: where it writes; by default to a pipe, `stdout`.
        more: further files of the program, which finds them as 3, 4, ...
        imported: modules that it need not import; without wanbench's own, it can run another version of wanbench.
    """

    def __init__(
        self,
        code: str,
        arguments: Sequence[str] = (),
        *,
        err: int,
        out: int | None = None,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        more: Iterable[int] = (),
        imported: tuple[str, ...] = ALL,
        address: Path | None = None,
    ) -> None:
        self.returncode: int | None = None
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.connect(str(address or _address(imported)))
        environment = dict(os.environ if environment is None else environment)
        processors = [*os.sched_getaffinity(0)]
        request = json.dumps([code, list(arguments), str(folder or Path.cwd()), environment, processors]).encode()
        if out is None:
            mine, out = os.pipe()
            self.stdout = os.fdopen(mine)
        socket.send_fds(self._connection, [request], [out, err, *more])
        if hasattr(self, "stdout"):
            os.close(out)
        self.pid = int(self._connection.recv(_MOST_BYTES))

    def poll(self) -> int | None:
        """Return the exit code, or minus the signal that ended it, or None while it runs."""
        return self.wait(0) if self._has_ended(0) else None

    def wait(self, timeout: float | None = None) -> int:
        """Return the same when it has ended. Raises: subprocess.TimeoutExpired."""
        if not self._has_ended(timeout):
            raise _too_late(self.pid, timeout)
        if self.returncode is None:
            self.returncode = int(self._connection.recv(_MOST_BYTES))
            self._connection.close()
        return self.returncode

    def communicate(self, timeout: float = 1e6) -> tuple[str, None]:
        """Return what it and its children write to `stdout`, when all have ended. Raises: subprocess.TimeoutExpired."""
        deadline, parts = time.monotonic() + timeout, []
        while not parts or parts[-1]:
            if not select.select([self.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise _too_late(self.pid, timeout)
            parts.append(os.read(self.stdout.fileno(), _MOST_BYTES))
        self.stdout.close()
        self.wait(max(0.0, deadline - time.monotonic()))
        return b"".join(parts).decode(), None

    def _has_ended(self, timeout: float | None) -> bool:
        return self.returncode is not None or bool(select.select([self._connection], [], [], timeout)[0])

    def send_signal(self, number: int) -> None:
        if self.poll() is None:  # its process id is its own until `poll` has seen the end
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def _too_late(pid: int, timeout: float | None) -> Exception:
    import subprocess

    return subprocess.TimeoutExpired(f"process {pid}", timeout or 0.0)


def _serve(listener: socket.socket, imported: Iterable[str]) -> None:
    """Fork for every connection, until the tests have ended."""
    import gc
    import importlib

    for module in imported:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # leave no zombies
    while 0 not in (ready := select.select([listener, 0], [], [])[0]):
        assert ready
        connection, _ = listener.accept()
        with connection:
            if os.fork() == 0:
                listener.close()
                _attend(connection)


def _attend(connection: socket.socket) -> None:
    """Fork the program, and report its process id and its end; if the tests end before, it is killed."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, files, _, _ = socket.recv_fds(connection, _MOST_BYTES, 16)
    code, arguments, folder, environment, processors = json.loads(request)
    pid = os.fork()
    if pid == 0:
        os.sched_setaffinity(0, processors)
        _become(connection, files, folder, environment)
        _run(code, arguments)
    for file in files:
        os.close(file)
    ended = os.pidfd_open(pid)
    if ended not in select.select([connection, ended], [], [])[0]:
        os.killpg(pid, signal.SIGKILL)
    how = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with contextlib.suppress(OSError):
        connection.send(str(how.si_status if how.si_code == os.CLD_EXITED else -how.si_status).encode())
        connection.recv(1)  # until the test has read it, the process exists, if only as a zombie
    os._exit(0)


def _become(connection: socket.socket, files: list[int], folder: str, environment: Mapping[str, str]) -> None:
    """Take the session, files, folder and environment of a program that was started."""
    import fcntl
    import tempfile

    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    connection.send(str(os.getpid()).encode())
    high = [fcntl.fcntl(file, fcntl.F_DUPFD, _HIGH) for file in (os.open(os.devnull, os.O_RDONLY), *files)]
    connection.detach()
    os.closerange(3, _HIGH)
    for number, file in enumerate(high):
        os.dup2(file, number)
        os.close(file)


def _run(code: str, arguments: Sequence[str]) -> None:
    """Run a program to its end, and end as Python does, except that it takes no time to tear down what was imported."""
    from types import ModuleType

    sys.argv = ["-c", *arguments]
    sys.modules["__main__"] = main = ModuleType("__main__")
    _fork_children()
    _end_after(lambda: exec(code, main.__dict__))


def _end_after(program: Callable[[], object]) -> None:
    import atexit
    import threading

    status = 0
    try:
        program()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError:
        status = 120
    os._exit(status)


def _fork_children() -> None:
    """Fork what this process starts of our own modules that import torch, unless it has imported a user's modules."""
    import subprocess

    from wanbench.workloads.imported import is_users

    at_first, start = {*sys.modules}, subprocess._fork_exec  # type: ignore[attr-defined]

    def fork_exec(command: list[str], *others: Any) -> int:
        later = [sys.modules[name] for name in {*sys.modules} - at_first if name.partition(".")[0] != "wanbench"]
        files = [file for module in later if (file := getattr(module, "__file__", None))]
        if command[1:3] != ["-P", "-m"] or command[3] not in _FORKED or any(map(is_users, files)):
            return start(command, *others)
        _, _, kept, _, environment, stdin, _, _, stdout, _, stderr, _, error, *_ = others
        pid = os.fork()
        if pid == 0:
            _end_after(lambda: _be_child(command, [stdin, stdout, stderr], {*kept} - {error}, environment))
        return pid

    subprocess._fork_exec = fork_exec  # type: ignore[attr-defined]


def _be_child(command: list[str], files: list[int], kept: set[int], environment: list[bytes] | None) -> None:
    """Be a started `python -P -m MODULE ARGUMENTS...` that has imported what it needs."""
    import atexit
    import runpy

    atexit._clear()
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    if environment is not None:
        os.environ.clear()
        os.environb.update(line.split(b"=", 1) for line in environment)
    for number, file in enumerate(files):
        if file not in (-1, number):
            os.dup2(file, number)
    for before, after in itertools.pairwise([2, *sorted(kept), _MOST_FILES]):
        os.closerange(before + 1, after)
    _BEFORE.extend([sys.stdout, sys.stderr])  # what they hold is written by the process that starts this one
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    _show_as(command)
    module, sys.argv = command[3], command[3:]
    sys.modules.pop(module, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _show_as(command: Sequence[str]) -> None:
    """Have this command line in /proc, as far as that of the process that forks is long enough."""
    import ctypes

    begin, end = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:47])
    text = "\0".join(command).encode()[: end - begin - 1]
    ctypes.memmove(begin, text.ljust(end - begin, b"\0"), end - begin)


def _command(address: Path, folder: Sequence[str], arguments: Sequence[str]) -> None:
    """Be a `wanbench` until it ends, of the version in a folder if there is one."""
    code = (OF_THE_FOLDER.format(folder=folder[0]) if folder else "") + WANBENCH
    started = Warm(code, arguments, out=1, err=2, address=address)
    code = started.wait()
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        _serve(socket.socket(fileno=int(sys.argv[2])), sys.argv[3:])
    else:
        end = sys.argv.index("--")
        _command(Path(sys.argv[2]), sys.argv[3:end], sys.argv[end + 1 :])
