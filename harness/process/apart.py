"""Your models and algorithms, "pkg:make" and "pkg:Class", run in a process of their own, never in the controller.

To plan, the controller must know how large a model is and how often an algorithm sends. It asks a child process, which
imports your code. So your code's `sys.exit`, `os._exit`, signals, crashes and threads end that process, and become one
line; what it prints goes to stderr. Only plain data and objects of wanbench come back.

    python -P -m wanbench.harness.process.apart FD LIFE_FD
"""

import atexit
import hashlib
import io
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, TypeVar, cast

from wanbench.harness.errors import SpecError
from wanbench.harness.process import child
from wanbench.workloads import imported

T = TypeVar("T")

_STDERR = 2
_END_S = 10.0
_OURS = ("wanbench", "builtins", "collections", "pathlib", "copyreg", "_codecs")
_BUILDERS = ("copyreg", "_codecs")  # functions by which pickle makes objects and bytes
_here = False  # whether this is the process for users' code


class OwnCodeError(SpecError, ValueError):
    """The code of a user raised an error, or ended the process that it ran in. The message is one line."""


def call(subject: str, function: Callable[..., T], *arguments: object) -> T:
    """Call a function of wanbench, which runs the code `subject`, in the process for users' code.

    Args:
        subject: names the code in errors, such as "'pkg:make'".

    Raises:
        OwnCodeError: the code raised an error that is none of wanbench's, or ended its process.
        Exception: of wanbench, as the function raised it.
    """
    if _here:
        return function(*arguments)
    with _lock:
        process = _running()
        try:
            process.connection.send_bytes(pickle.dumps((subject, function, arguments)))
            ok, answer, process.imported = _Plain(io.BytesIO(process.connection.recv_bytes())).load()
        except (EOFError, OSError):
            end = process.end()
            raise OwnCodeError(f"{subject} ended its process ({end}); expected it to return or to raise") from None
        except pickle.UnpicklingError as error:
            raise OwnCodeError(f"{subject}: {error}") from None
        except BaseException:  # interrupted, so the answer is still to come
            process.end()
            raise
    if not ok:
        raise cast(Exception, answer)
    return cast(T, answer)


class _Process:
    """The process for users' code. It ends when this one does."""

    def __init__(self, path: list[str], folder: str) -> None:
        self.path, self.folder = path, folder
        self.imported: list[tuple[str, str, str]] = []
        self.connection, peer = Pipe()
        read, write = os.pipe()
        self._life = os.fdopen(write, "wb")
        self._process = subprocess.Popen(
            child.command(__name__, str(peer.fileno()), str(read)),
            pass_fds=[peer.fileno(), read],
            stdin=subprocess.DEVNULL,
            stdout=_STDERR,
            stderr=_STDERR,
            env=child.same_path(),
        )
        peer.close()
        os.close(read)

    def is_current(self) -> bool:
        """Whether it can be asked, and the files of the modules that it has imported are as they were then."""
        files = ((Path(path), then) for _, path, then in self.imported)
        return self._process.poll() is None and all(
            path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == then for path, then in files
        )

    def end(self) -> str:
        """End it if it still runs. Return how it ended."""
        with suppress(OSError):
            self.connection.close()
            self._life.close()
        try:
            code = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"status {code}"


def modules() -> list[tuple[str, str, str]]:
    """(module, path, SHA-256) of the users' modules that the process has imported, as it imported them."""
    return [] if _process is None else _process.imported


_lock = threading.RLock()
_process: _Process | None = None


def _running() -> _Process:
    """The process, started if there is none that imports from the same folders, and has imported what they hold."""
    global _process
    path, folder = list(sys.path), os.getcwd()
    same = _process is not None and (_process.path, _process.folder) == (path, folder)
    if _process is not None and not (same and _process.is_current()):
        _process.end()
        _process = None
    _process = _process or _Process(path, folder)
    return _process


@atexit.register
def _end() -> None:
    if _process is not None:
        _process.end()


class _Plain(pickle.Unpickler):
    """Reads answers: plain data and classes of wanbench. It imports no module of the user, and calls no function."""

    def find_class(self, module: str, name: str) -> Any:
        permitted = module.partition(".")[0] in _OURS and "." not in name
        loaded = super().find_class(module, name) if permitted else None
        if not (isinstance(loaded, type) or (permitted and module in _BUILDERS)):
            raise pickle.UnpicklingError(f"expected plain data, got an object of {module}.{name}")
        return loaded


def main() -> None:
    """Answer calls, until the other side closes the connection or ends."""
    global _here
    _here = True
    imported.record()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the controller gets it too, and then ends this process
    connection, life = Connection(int(sys.argv[1])), int(sys.argv[2])
    os.set_inheritable(connection.fileno(), False)
    os.set_inheritable(life, False)
    threading.Thread(target=_end_with, args=(life,), daemon=True).start()
    while True:
        try:
            subject, function, arguments = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)
        connection.send_bytes(_answer(subject, function, arguments))


def _end_with(life: int) -> None:
    os.read(life, 1)
    os._exit(0)


def _answer(subject: str, function: Callable[..., object], arguments: tuple[object, ...]) -> bytes:
    try:
        return pickle.dumps((True, function(*arguments), imported.noted()))
    except SystemExit as end:
        code = "" if end.code is None else repr(end.code)
        error: Exception = OwnCodeError(f"{subject} called sys.exit({code}); expected it to return or to raise")
    except BaseException as raised:
        error = _own_error(subject, raised)
    return pickle.dumps((False, error, imported.noted()))


def _own_error(subject: str, error: BaseException) -> Exception:
    """The error as one of wanbench's own classes: as raised, or of the class that it was derived from."""
    for base in type(error).__mro__:
        if base.__module__.startswith("wanbench.") and issubclass(base, Exception) and len(error.args) == 1:
            return base(str(error))
    return OwnCodeError(f"{subject} raised {' '.join(f'{type(error).__name__}: {error}'.splitlines())}")


if __name__ == "__main__":
    from wanbench.harness.process.apart import main as _main  # so that its errors have the name that others know

    _main()
