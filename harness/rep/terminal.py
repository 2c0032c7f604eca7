"""The lines of a program for its user's terminal: live, also from progress bars, and without control characters."""

from __future__ import annotations

import re
from collections.abc import Callable

LONGEST = 1 << 16  # bytes without a line end are shown in parts
_UPDATE_S = 1.0  # a progress bar is shown once in this time
_END = re.compile(rb"\r\n|\n|\r")
_ESCAPE = re.compile(rb"\x1b(?:\[([0-?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~]?)")
_CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]")


class Lines:
    """Cuts the output of a process into lines.

    A progress bar goes back to the beginning of its line with each update. One update a second is shown, each as a
    line, and the last one.

    Args:
        show: gets each line, without its end.
    """

    def __init__(self, show: Callable[[bytes], None]) -> None:
        self._show = show
        self._rest = b""
        self._update = b""  # not yet shown
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
