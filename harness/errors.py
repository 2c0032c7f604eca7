"""Every error the user may see, and the exit code it ends with.

WanbenchError
    SpecError           2   the spec, a profile, an option or a name is wrong
    HostError           3   this host cannot do what was asked
    CellsFailed         4   the run went on to its end, but some cells failed
    Interrupted       130   Ctrl-C or SIGTERM; the same command resumes
    RepFailed               one repetition failed; the run goes on

`check` ends without an error where there is a verdict: 1 something got worse, 4 something failed, 5 inconclusive or not
comparable.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EXIT_OK, EXIT_REGRESSION, EXIT_SPEC, EXIT_HOST, EXIT_FAILED, EXIT_INCONCLUSIVE = 0, 1, 2, 3, 4, 5
EXIT_INTERRUPTED = 130


class WanbenchError(Exception):
    """Base of all errors that are shown as one line."""

    exit_code = 1


class SpecError(WanbenchError):
    """What the user wrote is wrong: the message says where, what was expected and what to do."""

    exit_code = EXIT_SPEC


class HostError(WanbenchError):
    """The host lacks a privilege, a device or the memory."""

    exit_code = EXIT_HOST


class CellsFailed(WanbenchError):
    """Some cells have no valid result."""

    exit_code = EXIT_FAILED


class Interrupted(WanbenchError):
    """The user stopped the run."""

    exit_code = EXIT_INTERRUPTED


class RepFailed(WanbenchError):
    """A repetition ended without a result; `log_tail` holds the last lines a worker printed."""

    def __init__(self, reason: str, log_tail: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.log_tail = log_tail


def in_words(error: OSError) -> str:
    """What the system says, "No space left on device", also where a library has put a sentence of its own."""
    return os.strerror(error.errno) if error.errno else str(error)


@contextmanager
def writing(path: Path, what: str, instead: str = "") -> Iterator[None]:
    """Make the folder of a file, then write `what` there. Raises: HostError, which ends in `instead`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise HostError(f"{path}: cannot write {what} ({error.strerror}){instead}") from None
