"""The frame of an emulator's own process: how it starts, is commanded and ends. `process.py` is the other side."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Callable
from typing import Any, Protocol

from wanbench.harness.emulators.plan import EmulatedNetwork
from wanbench.workloads.process.control import Channel, ControlError, text
from wanbench.workloads.process.namespace import die_with_parent


class Served(Protocol):
    """What obeys the commands of a controller."""

    def attach(self, rank: int, fd: int) -> None:
        """A worker is there; `fd` is the emulator's now."""

    def apply(self, network: EmulatedNetwork, seed: int) -> None:
        """These values, and places."""

    def update(self, network: EmulatedNetwork) -> None:
        """These values, at the places that there are. Raises: ValueError, for others."""

    def report(self, *, reset: bool) -> dict[str, Any]:
        """The fields of `base.EmulatorStats`."""
        ...


def answer(control: Channel, served: Served) -> bool:
    """Obey one command; false at the end of the control socket."""
    request = control.recv()
    if request is None:
        return False
    try:
        said = {"ok": _obey(control, served, request)}
    except (ValueError, OSError) as error:
        said = {"error": f"{request.get('do')}: {error}"}
    except (KeyError, TypeError) as error:
        said = {"error": f"{request['do']}: a value is missing or of another kind: {error}"}
    control.send(said)
    return True


def _obey(control: Channel, served: Served, request: dict[str, Any]) -> Any:
    match text(request, "do"):
        case "attach":
            served.attach(request["rank"], control.take_fd())
        case "apply":
            served.apply(EmulatedNetwork.from_json(request["network"]), request["seed"])
        case "update":
            served.update(EmulatedNetwork.from_json(request["network"]))
        case "stats":
            return served.report(reset=request["reset"])
        case other:
            raise ValueError(f"unknown command {other!r}")
    return None


def main(module: str, serve: Callable[[int, int], None]) -> None:
    """Entry of the process: `--control-fd N --parent PID`, which `serve` takes."""
    parser = argparse.ArgumentParser(prog=module)
    parser.add_argument("--control-fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    arguments = parser.parse_args()
    die_with_parent(arguments.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the controller decides what Ctrl-C means
    with contextlib.suppress(ConnectionError):
        try:
            serve(arguments.control_fd, arguments.parent)
        except ControlError as error:
            sys.exit(str(error))
