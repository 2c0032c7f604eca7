"""The output of a program's processes: each writes to its own files, or to a file and the user's terminal.

The terminal shows lines, live, also from progress bars, and without control characters.
"""

import os
import re
import select
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_GRACE_S = 10.0
_IDLE_S = 1.0
LONGEST = 1 << 16  # bytes without a line end are shown in parts
_UPDATE_S = 1.0  # a progress bar is shown once in this time
_END = re.compile(rb"\r\n|\n|\r")
_ESCAPE = re.compile(rb"\x1b(?:\[([0-?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~]?)")
_CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]")

# Returns the descriptors of a worker: stdout and stderr of its first process, and so on. We close them.
Descriptors = Callable[[int], Sequence[int]]


def log(folder: Path, rank: int, stream: str) -> Path:
    """The file to which `to_files` writes a process's output."""
    return folder / f"rank-{rank}.{stream}.log"


@contextmanager
def to_files(sites: Sequence[str], processes: int, folder: Path) -> Iterator[Descriptors]:
    """Write the stdout and the stderr of every process to a file each.

    Args:
        sites: site of each worker.
        processes: number of processes per worker.
    """
    descriptors: dict[int, list[int]] = defaultdict(list)
    with ExitStack() as files:
        for rank in range(len(sites) * processes):
            for stream in ("out", "err"):
                file = files.enter_context(log(folder, rank, stream).open("ab"))
                descriptors[rank // processes].append(file.fileno())
        yield descriptors.__getitem__


@contextmanager
def to_files_and_terminal(sites: Sequence[str], processes: int, folder: Path) -> Iterator[Descriptors]:
    """Write the output of each process to a file, and at once, with rank and site, to our stdout and stderr."""
    descriptors: dict[int, list[int]] = {}
    threads: list[threading.Thread] = []
    lock = threading.Lock()
    width = len(str(len(sites) * processes - 1))
    with ExitStack() as logs:
        for rank in range(len(sites) * processes):
            worker = rank // processes
            prefix = f"[{rank:{width}} {sites[worker]}] ".encode()
            file = logs.enter_context((folder / f"rank-{rank}.log").open("wb"))
            for terminal in (sys.stdout.buffer, sys.stderr.buffer):
                read, write = os.pipe()
                descriptors.setdefault(worker, []).append(write)
                threads.append(threading.Thread(target=_pump, args=(read, prefix, terminal, file, lock), daemon=True))
                threads[-1].start()
        try:
            yield descriptors.__getitem__
        finally:
            for descriptor in (fd for of_worker in descriptors.values() for fd in of_worker):
                os.close(descriptor)
            for thread in threads:
                thread.join(_GRACE_S)


def _pump(read: int, prefix: bytes, terminal: BinaryIO, file: BinaryIO, lock: threading.Lock) -> None:
    colours = terminal.isatty()

    def show(line: bytes) -> None:
        shown = clean(line, colours=colours)
        end = b"\x1b[0m\n" if b"\x1b" in shown else b"\n"
        with lock, suppress(OSError, ValueError):
            terminal.write(prefix + shown + end)
            terminal.flush()

    lines = Lines(show)
    try:
        while True:
            if not select.select([read], [], [], _IDLE_S)[0]:
                lines.flush()  # such as a question
                continue
            data = os.read(read, LONGEST)
            if not data:
                break
            with lock, suppress(OSError):
                file.write(data)
                file.flush()
            lines.add(data, time.monotonic())
        lines.flush()
    finally:
        os.close(read)


class Lines:
    """Cuts the output of a process into lines.

    A progress bar goes back to the beginning of its line with each update. One update a second is shown, each as a
    line, and the last one.

    Args:
        show: gets each line, without its end.
    """

    def __init__(self, show: Callable[[bytes], None]) -> None:
        self._show = show
        self._rest = self._update = b""  # not yet shown: a line without its end, and a progress bar
        self._updated_s = float("-inf")

    def add(self, data: bytes, now_s: float) -> None:
        """Take more output, at a time in seconds."""
        text, begin = self._rest + data, 0
        for end in _END.finditer(text):
            if end.group() == b"\r" and end.end() == len(text) and end.start() > begin:
                break  # its line feed can follow
            self._line(text[begin : end.start()], now_s, update=end.group() == b"\r")
            begin = end.end()
        self._rest = text[begin:]
        if len(self._rest) > LONGEST:
            self.flush()

    def flush(self) -> None:
        """Show what has no line end yet."""
        rest, self._rest = self._rest.rstrip(b"\r") or self._update, b""
        self._update = b""
        if rest:
            self._show(rest)

    def _line(self, line: bytes, now_s: float, *, update: bool) -> None:
        if not update:
            self._show(line or self._update)
            self._update = b""
        elif line:
            self._update = line
            if now_s - self._updated_s >= _UPDATE_S:
                self._show(line)
                self._update, self._updated_s = b"", now_s


def clean(line: bytes, *, colours: bool) -> bytes:
    """A line without escape sequences and control characters; `colours` keeps sequences that change the colour."""

    def kept(match: re.Match[bytes]) -> bytes:
        return match.group() if colours and match.group(2) == b"m" else b""

    return _CONTROL.sub(b"", _ESCAPE.sub(kept, line))
