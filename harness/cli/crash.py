"""An error of ours: one line for the user, and a file with what is needed to find the cause, to be sent by the user."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import tempfile
import traceback
from importlib.metadata import PackageNotFoundError, version

from wanbench.harness.errors import masked

_PACKAGES = ("wanbench", "torch", "numpy", "click", "pydantic")
_ASK = "it has the traceback, versions and this command, nothing else; read it and send it as a bug report"


def told(error: BaseException) -> str:
    """The line about an error of ours. Its report is a new file in the folder for temporary files."""
    title = f"internal error: {masked(traceback.format_exception_only(error)[-1]).strip().splitlines()[0]}"
    try:
        handle, path = tempfile.mkstemp(prefix="wanbench-error-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(report(error))
    except OSError as cannot:
        return f"{title}; there is no report: {': '.join(filter(None, [cannot.filename, cannot.strerror]))}"
    sent = f"`gh issue create --title 'internal error' --body-file {shlex.quote(path)}`"
    return f"{title}; the report is {path}: {_ASK}, {sent}"


def report(error: BaseException) -> str:
    """Command, versions and traceback. The home folder, which names the user, is written as ~."""
    facts = [
        f"command: {shlex.join(['wanbench', *map(masked, sys.argv[1:])])}",
        f"python: {platform.python_version()}",
        f"kernel: {platform.system()} {platform.release()} {platform.machine()}",
        *(f"{name}: {_version(name)}" for name in _PACKAGES),
    ]
    text = masked("\n".join([*facts, "", "".join(traceback.format_exception(error))]))
    home = os.path.expanduser("~")  # without one, it is still ~
    return text if home == "/" else text.replace(home, "~")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
