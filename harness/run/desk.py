"""A run's folder as seen from where it is not: a Desk beside it claims and publishes for the nodes of a cluster.

A node measures with the same session as everywhere. Its folder and its progress are the ones here, which call the Desk.
So nodes need no shared folder, and processes that see the folder can help in the same run.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from wanbench.harness.plan.cell import Cell
from wanbench.harness.results.claims import SharedRun, Watch
from wanbench.harness.results.store import RunFolder
from wanbench.harness.run.progress import Reporter
from wanbench.harness.run.repetitions import Item, pending


class Desk:
    """Claims and publishes for the nodes, in the process that sees the run's folder.

    Args:
        path: the run's folder. cells, repeats: what is measured there.
    """

    def __init__(self, path: Path, cells: Sequence[Cell], repeats: int) -> None:
        self._path, self._cells, self._repeats = path, cells, repeats
        self._nodes: dict[str, SharedRun] = {}
        self._said: list[tuple[str, str]] = []

    def join(self, node: str) -> None:
        """Give a node a worker in the run's folder."""
        self._nodes[node] = SharedRun(self._path, Watch(self._path))

    def pending(self, node: str, host: str) -> list[Item]:
        """What is left to measure for a node on this host."""
        return pending(self._cells, self._repeats, self._nodes[node], host)

    def leave(self, node: str) -> None:
        """Give back what a node has, because it is done or dead."""
        if node in self._nodes:
            self._nodes.pop(node).close()

    def folder(self, node: str, method: str, *arguments: Any, **named: Any) -> Any:
        """Call a method of the run's folder, as the node's worker."""
        return getattr(self._nodes[node], method)(*arguments, **named)

    def keep(self, node: str, method: str, cell: Cell, rep: int, content: bytes, about: Any, host: str | None) -> Any:
        """Publish what a node has measured, or keep it as a failed try: `finish` or `fail` of the run's folder."""
        part = self._nodes[node].begin(cell, rep)
        return self.folder(node, method, cell, rep, _unpacked(content, part), about, host)

    def say(self, how: str, line: str) -> None:
        """Take a line of a node's progress."""
        self._said.append((how, line))

    def said(self) -> list[tuple[str, str]]:
        """The lines since the last call."""
        found, self._said = self._said, []
        return found


def _packed(part: Path) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=1) as archive:
        archive.add(part, arcname=".")
    return content.getvalue()


def _unpacked(content: bytes, part: Path) -> Path:
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        archive.extractall(part, filter="data")
    return part


Ask = Callable[..., Any]  # calls a method of the Desk and waits for the answer


def _far(method: str) -> Callable[..., Any]:
    """A method of the run's folder, called at the Desk."""

    def ask(run: FarRun, *arguments: Any, **named: Any) -> Any:
        return run.ask("folder", run.node, method, *arguments, **named)

    return ask


def _far_kept(method: str) -> Callable[..., Any]:
    """`finish` or `fail` of the run's folder, called at the Desk."""

    def ask(run: FarRun, cell: Cell, rep: int, part: Path, about: Any, host: str | None = None) -> Any:
        return run.ask("keep", run.node, method, cell, rep, _packed(part), about, host)

    return ask


class FarRun(SharedRun):
    """A folder of the node's own, whose repetitions are claimed and published at the Desk."""

    def __init__(self, path: Path, ask: Ask, node: str) -> None:
        RunFolder.__init__(self, path)
        self.ask, self.node = ask, node

    take, has, release = _far("take"), _far("has"), _far("release")
    is_settled, is_finished = _far("is_settled"), _far("is_finished")
    rows, event = _far("rows"), _far("event")

    finish, fail = _far_kept("finish"), _far_kept("fail")


class FarReporter(Reporter):
    """Progress that the driver prints."""

    def __init__(self, ask: Ask) -> None:
        super().__init__(0)
        self._ask = ask

    def say(self, line: str) -> None:
        self._ask("say", "say", line)

    def finished(self, line: str) -> None:
        self._ask("say", "finished", line)

    def elsewhere(self) -> None:
        """The node that settles it counts it."""

    def waiting(self, count: int) -> None:
        """What is left is with other nodes, which report it."""

    def eta(self, seconds: float | None) -> None:
        """One node does not know what the others do."""
