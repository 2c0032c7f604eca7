"""The emulator process's side of its control socket: it starts, obeys commands and ends. `emulator.py` is the other."""

import contextlib
import signal
import sys
from collections.abc import Callable
from typing import Any, Protocol

from wanbench.harness.emulators.plan import EmulatedNetwork
from wanbench.workloads.process.control import Channel, ControlError, text
from wanbench.workloads.process.namespace import die_with_parent


class Served(Protocol):
    """An emulator that obeys the commands of a controller."""

    def attach(self, rank: int, fd: int) -> None:
        """Connect a worker. The emulator owns `fd` from now on."""

    def apply(self, network: EmulatedNetwork, seed: int) -> None:
        """Build this network."""

    def update(self, network: EmulatedNetwork) -> None:
        """Change the values of the network. Raises: ValueError, if its sites or workers differ."""

    def report(self, *, reset: bool) -> dict[str, Any]:
        """Return the fields of `emulator.EmulatorStats`."""


def answer(control: Channel, served: Served) -> bool:
    """Obey one command. Return false at the end of the control socket."""
    request = control.recv()
    if request is None:
        return False
    try:
        reply = {"ok": _obey(control, served, request)}
    except (ValueError, OSError) as error:
        reply = {"error": f"{request.get('do')}: {error}"}
    except (KeyError, TypeError) as error:
        reply = {"error": f"{request['do']}: a value is missing or of the wrong type: {error}"}
    control.send(reply)
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


def main(serve: Callable[[int, int], None]) -> None:
    """Run the process with the arguments CONTROL_FD and PARENT_PID, which are passed to `serve`."""
    control_fd, parent = map(int, sys.argv[1:])
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the controller decides what Ctrl-C means
    with contextlib.suppress(ConnectionError):
        try:
            serve(control_fd, parent)
        except ControlError as error:
            sys.exit(str(error))
