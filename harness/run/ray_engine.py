"""Ray as the engine: one pull worker on every node of a cluster, with all its processors.

The run's folder stays with the driver. The Desk, an actor beside it, claims and publishes for the nodes. Ray repeats
nothing: when a node dies, the Desk gives back what it had, and another node takes it. Nodes that join later get work
too.

A node measures with the same session as everywhere. Its folder and its progress are the ones here, which call the Desk.
So nodes need no shared folder, and processes that see the folder can help in the same run.
"""

from __future__ import annotations

import io
import socket
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wanbench.harness.errors import HostError, Interrupted, WanbenchError
from wanbench.harness.plan.cell import Cell
from wanbench.harness.results.claims import SharedRun, Watch
from wanbench.harness.results.store import RunFolder
from wanbench.harness.run.host import ThisHost, control_folder, stoppable
from wanbench.harness.run.manifest import code_of, differs, own_code, this_host
from wanbench.harness.run.progress import Reporter
from wanbench.harness.run.session import STOPPED, Item, Tally, execute, pending

_LOOK_S = 0.5
_ANSWER_S = 10.0
_END_S = 15.0  # for nodes to clean up after Ctrl-C
_NOT_SHIPPED = ["/results/", "/.git/", "/.venv/", "/build/"]
Ask = Callable[..., Any]  # calls a method of the Desk and waits for the answer


def measure(cells: Sequence[Cell], repeats: int, folder: RunFolder, say: Reporter, *, address: str | None) -> Tally:
    """Measure on all nodes of a cluster, until all is settled or no node is left.

    Args:
        address: of the cluster; None is the one that RAY_ADDRESS names, or else a new one on this host.

    Raises:
        HostError: Ray is not installed, or no node can measure. Interrupted: Ctrl-C or SIGTERM.
    """
    ray = _imported()
    with stoppable() as stopped, _connected(ray, address, cells):
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        desk = (
            ray.remote(Desk)
            .options(num_cpus=0, max_concurrency=32, scheduling_strategy=here)
            .remote(folder.path.resolve(), [*cells], repeats)
        )
        cluster = _Cluster(ray, desk, folder.name, cells, say)
        try:
            while cluster.goes_on():
                if stopped.wait(_LOOK_S):
                    raise Interrupted(STOPPED)
        finally:
            cluster.end()
    if cluster.unsettled:
        raise HostError("--engine ray: no node could measure to the end; the lines above say why")
    failed = [cell.slug for cell in cells for rep in range(repeats) if not folder.is_finished(cell, rep)]
    return Tally(len(cells) * repeats - len(failed), failed)


@contextmanager
def _connected(ray: Any, address: str | None, cells: Sequence[Cell]) -> Iterator[None]:
    """Join a cluster. Its nodes get this code, and the current folder if cells need files of the user's."""
    import wanbench

    _refuse_silent(address)
    users = {"working_dir": ".", "excludes": _NOT_SHIPPED} if own_code(cells) else {}
    shipped = {"py_modules": [str(Path(next(iter(wanbench.__path__))))], **users}
    try:
        ray.init(address=address, runtime_env=shipped, log_to_driver=False, logging_level="error")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise HostError(f"--engine ray: {str(error).splitlines()[0]}") from None
    try:
        yield
    finally:
        ray.shutdown()


def _imported() -> Any:
    try:
        import ray
        import ray.exceptions
        import ray.util.scheduling_strategies
    except ImportError:
        raise HostError("--engine ray: Ray is not installed; run: pip install 'wanbench[ray]'") from None
    return ray


def _refuse_silent(address: str | None) -> None:
    """Refuse an address at which nobody answers; Ray would try for minutes. Raises: HostError."""
    host, _, port = (address or "").rpartition(":")
    if not host or not port.isdecimal():  # such as "auto"
        return
    try:
        socket.create_connection((host.removeprefix("ray://"), int(port)), _ANSWER_S).close()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise HostError(f"--engine ray: {address}: {why}; expected the address of a running head node") from None


class _Cluster:
    """The nodes at work, as the driver sees them."""

    def __init__(self, ray: Any, desk: Any, run: str, cells: Sequence[Cell], say: Reporter) -> None:
        self._ray, self._desk, self._run, self._say = ray, desk, run, say
        self._code = code_of(cells)
        self._at_work: dict[Any, str] = {}  # node by its task
        self._seen: set[str] = set()
        self._began = time.monotonic()
        self.unsettled = True  # something to do

    def goes_on(self) -> bool:
        """Start new nodes, and look which have ended. False: no node is at work."""
        if self.unsettled:
            self._start()
        ended, _ = self._ray.wait([*self._at_work], timeout=0) if self._at_work else ([], [])
        for task in ended:
            self._settle(task, self._at_work.pop(task))
        self._print()
        return bool(self._at_work)

    def end(self) -> None:
        """Stop all nodes, and wait until they have cleaned up."""
        for task in self._at_work:
            self._ray.cancel(task)
        if self._at_work:
            self._ray.wait([*self._at_work], num_returns=len(self._at_work), timeout=_END_S)
        for node in self._at_work.values():
            self._ray.get(self._desk.leave.remote(node))
        self._print()

    def _start(self) -> None:
        for node in self._ray.nodes():
            name, cpus = node["NodeID"], int(node["Resources"].get("CPU", 0))
            if not node["Alive"] or cpus < 1 or name in self._seen:
                continue
            self._seen.add(name)
            self._ray.get(self._desk.join.remote(name))
            there = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(name, soft=False)
            serve = self._ray.remote(_serve).options(num_cpus=cpus, max_retries=0, scheduling_strategy=there)
            self._at_work[serve.remote(self._desk, name, self._run, self._code, cpus)] = name
            self._say.say(f"node {name[:6]} at {node['NodeManagerAddress']}: {cpus} processor{'s' * (cpus > 1)}")

    def _settle(self, task: Any, node: str) -> None:
        """Give back what an ended node had. A node that came to its end has waited until all was settled."""
        self._ray.get(self._desk.leave.remote(node))
        try:
            self._ray.get(task)
            self.unsettled = False
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause
            self._say.say(f"node {node[:6]}: {cause if isinstance(cause, WanbenchError) else error}")
        except self._ray.exceptions.RayError as error:
            self._say.say(f"node {node[:6]} died; others measure what it had: {str(error).partition('. ')[0]}")

    def _print(self) -> None:
        for how, line in self._ray.get(self._desk.said.remote()):
            if how == "finished":
                done = self._say.done + 1
                self._say.finished(line, (time.monotonic() - self._began) / done * (self._say.total - done))
            else:
                self._say.say(line)


def _serve(desk: Any, node: str, run: str, code: dict[str, str], jobs: int) -> None:
    """Measure on this node until nothing is left.

    Args:
        run: the name of the run. code: of the driver, from `code_of`.
    """
    import ray

    def ask(method: str, *arguments: Any, **named: Any) -> Any:
        return ray.get(getattr(desk, method).remote(*arguments, **named))

    todo: list[Item] = ask("pending", node, this_host())
    if other := differs([item.cell for item in todo], code):
        raise HostError(f"its code or data differ from the driver's: {other}")
    with control_folder() as scratch:
        folder = FarRun(scratch / run, ask, node)
        folder.path.mkdir()
        execute([*todo], folder, jobs, ThisHost().capacity(), FarReporter(ask))


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
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
            archive.extractall(part, filter="data")
        return self.folder(node, method, cell, rep, part, about, host)

    def say(self, how: str, line: str) -> None:
        """Take a line of a node's progress."""
        self._said.append((how, line))

    def said(self) -> list[tuple[str, str]]:
        """The lines since the last call."""
        lines, self._said = self._said, []
        return lines


def _packed(part: Path) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=1) as archive:
        archive.add(part, arcname=".")
    return content.getvalue()


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

    def finished(self, line: str, remaining_s: float | None = None) -> None:
        """Report a repetition. One node does not know what the others do, so it does not know the remaining time."""
        self._ask("say", "finished", line)

    def elsewhere(self) -> None:
        """The node that settles it counts it."""

    def waiting(self, count: int) -> None:
        """What is left is with other nodes, which report it."""
