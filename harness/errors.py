"""Every error that a user can see, and its exit code.

WanbenchError
    SpecError           2   the spec, a profile, an option or a name is wrong
    HostError           3   this host cannot do it
    CellsFailed         4   the run is complete, but some cells failed
    Interrupted       130   Ctrl-C, SIGTERM or SIGHUP; the same command resumes
    RepFailed               one repetition failed; the run goes on

Every other exception is an error of ours, 70. `check` raises no error if there is a verdict. Its exit codes are then
0, 1 (regression), 4 (a cell failed) and 5 (inconclusive, not comparable, or nothing was judged).
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

EXIT_OK, EXIT_REGRESSION, EXIT_SPEC, EXIT_HOST, EXIT_FAILED, EXIT_INCONCLUSIVE = 0, 1, 2, 3, 4, 5
EXIT_INTERNAL, EXIT_INTERRUPTED = 70, 130
_SECRET = 6  # characters; a shorter value is in many texts by chance
_NO_ROOM = ("failed to map segment", "cannot allocate memory", "Cannot allocate memory")
_OBEYED = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~]?)|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)


class WanbenchError(Exception):
    """Base of all errors that are reported as one line."""

    exit_code = EXIT_INTERNAL


class SpecError(WanbenchError):
    """The user's input is wrong. The message names the place, what was expected and what to do."""

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
    """A repetition ended without a result. `log_tail` has the last lines that a worker printed.

    Neither has what a terminal obeys, since users' code wrote part of both.
    """

    def __init__(self, reason: str, log_tail: tuple[str, ...] = ()) -> None:
        super().__init__(printable(reason))
        self.log_tail = tuple(map(printable, log_tail))


def out_of_memory(error: BaseException) -> bool:
    """Whether an error means that this process cannot have more memory: also of a library that cannot be mapped."""
    return isinstance(error, MemoryError) or (
        isinstance(error, ImportError) and any(words in str(error) for words in _NO_ROOM)
    )


def printable(text: str) -> str:
    """The text without escape sequences and control characters of a terminal."""
    return _OBEYED.sub("", text)


def masked(text: str) -> str:
    """The text without the values that `--env NAME=VALUE` gives on our command line: they can be secret."""
    own = sys.argv[: sys.argv.index("--")] if "--" in sys.argv else sys.argv
    for before, option in pairwise(own):
        name, _, value = option.removeprefix("--env=").partition("=")
        if value and (before == "--env" or option.startswith("--env=")):
            text = text.replace(f"{name}={value}", f"{name}=***")
            text = text.replace(value, "***") if len(value) >= _SECRET else text
    return text


def in_words(error: OSError) -> str:
    """The system's message, such as "No space left on device", even if a library replaced it with its own."""
    return os.strerror(error.errno) if error.errno else str(error)


@contextmanager
def as_spec_error(where: str, *kinds: type[Exception]) -> Iterator[None]:
    """Report an error of these kinds as one of the user's input, with `where` in front of it. Raises: SpecError."""
    try:
        yield
    except kinds as error:
        raise SpecError(f"{where}: {error}") from None


@contextmanager
def writing(path: Path, what: str, instead: str = "") -> Iterator[None]:
    """Make the folder of a file that is written inside the context. Raises: HostError, which ends in `instead`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise HostError(f"{path}: cannot write {what} ({error.strerror}){instead}") from None
