"""Measures what is not finished of a plan, alone or together with other processes that share the run's folder."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial

from wanbench.harness.errors import HostError, SpecError, in_words
from wanbench.harness.plan.cell import Cell
from wanbench.harness.plan.load import Capacity
from wanbench.harness.plan.plan import Plan, make
from wanbench.harness.rep.sources import OWN_CODE, changed
from wanbench.harness.results import planned as planning
from wanbench.harness.results.claims import SharedRun, Watch, sweep
from wanbench.harness.results.columns import Row
from wanbench.harness.results.store import RunFolder, RunLock
from wanbench.harness.run.host import ThisHost, check_host, explained
from wanbench.harness.run.manifest import differs, manifest, this_host
from wanbench.harness.run.progress import Reporter
from wanbench.harness.run.session import Tally, execute, pending
from wanbench.harness.spec.experiment import Spec
from wanbench.harness.text import listed

_MOST_NAMES = 3
Cluster = Callable[[Sequence[Cell], int, RunFolder, Reporter], Tally]  # measures on other hosts


def measure_all(
    plan: Plan,
    folder: RunFolder,
    *,
    cells: Sequence[Cell] | None = None,
    text: str | None = None,
    jobs: int | None = None,
    fresh: bool = False,
    keep: bool = False,
    draw: bool = True,
    cluster: Cluster | None = None,
) -> Tally:
    """Measure the cells of a plan, as `wanbench run` does. Others that measure the same plan here share the work.

    Args:
        cells: the cells to measure now; None measures all cells of the plan.
        text: the spec as the user wrote it, stored beside the plan.
        fresh: throw earlier results away. keep: accept results that other code measured.
        draw: draw the figures at the end. cluster: measure there instead of on this host.

    Raises:
        SpecError, HostError: nothing was measured, or the host cannot go on. Interrupted: finished repetitions are
        kept.
    """
    cells = list(plan.cells if cells is None else cells)
    with folder.lock(alone=False) as held, _writable(folder):
        if fresh or not _is_stored(folder, plan):
            _refuse_beside_others(folder, held, fresh)
        beside = held.joined or bool(Watch(folder.path).candidates())
        if not held.joined:
            sweep(folder.path)
        _check(folder, plan, cells, fresh=fresh, keep=keep, here=cluster is None, beside=beside)
        if fresh:  # only now that the cells can run
            folder.clear()
        if not held.joined:
            folder.prepare(text, plan.to_json(), manifest(cells))
        return _measured(plan, folder, held, cells, jobs, again=True, draw=draw, cluster=cluster)


def help_measuring(folder: RunFolder, *, jobs: int | None = None, keep: bool = False) -> Tally:
    """Measure what is left of the run in a folder, as `wanbench work` does. What failed is not tried again.

    Raises: as `measure_all`.
    """
    plan = stored_plan(folder)
    with folder.lock(alone=False) as held, _writable(folder):
        _check(folder, plan, plan.cells, fresh=False, keep=keep, here=True, beside=True)
        return _measured(plan, folder, held, plan.cells, jobs, again=False, draw=True)


def stored_plan(folder: RunFolder) -> Plan:
    """The plan in a run's folder, with the values of `auto` that are stored there. Raises: SpecError."""
    stored = planning.read(folder.path)
    where = str(folder.path / planning.FILE)
    plan = make(Spec.from_dict(stored.spec, where), where, _AsStored(stored), stored.auto)
    if {cell.key for cell in plan.cells} != stored.cells.keys():
        raise SpecError(
            f"{where}: this version of wanbench makes other cells from this spec; use the version that wrote the file, "
            "or `wanbench run` with the spec"
        )
    return plan


class _AsStored:
    """A host whose answers are stored."""

    def __init__(self, stored: planning.Planned) -> None:
        self._auto = stored.auto

    def testbed(self) -> str:
        return str(self._auto["testbed"])

    def emulator(self, testbed: str) -> str:
        return str(self._auto["emulator"][testbed])

    def capacity(self) -> Capacity:
        return ThisHost().capacity()


def _is_stored(folder: RunFolder, plan: Plan) -> bool:
    try:
        stored = json.loads((folder.path / planning.FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return False
    return bool(stored == json.loads(json.dumps(plan.to_json())))


def _refuse_beside_others(folder: RunFolder, held: RunLock, fresh: bool) -> None:
    """Refuse to change a plan, or to throw results away, while others measure. Raises: HostError."""
    watch = Watch(folder.path)
    workers = watch.candidates() if held.joined else watch.living()
    if held.joined or workers:
        who = f" ({workers[0]})" if workers else ""
        why = ", so --fresh is refused" if fresh else " with another spec or other options"
        raise HostError(f"{folder.path}: another process{who} is measuring here{why}; wait for it, or use --out")


def _refuse_other_code(folder: RunFolder, plan: Plan) -> None:
    """Refuse to measure beside others whose code differs, even if nothing is finished. Raises: SpecError."""
    try:
        other = differs(plan.cells, folder.manifest()["code"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return
    if other is not None:
        raise SpecError(
            f"{folder.path}: this run began with other code or data than this host has ({other}); install the same "
            "versions of wanbench and torch, and copy the same files; --keep measures nevertheless"
        )


def _other_code(cells: Mapping[str, Cell], row: Row) -> str | None:
    """What of the code that made a row is different now. Rows of earlier versions of wanbench do not list it."""
    cell = cells.get(row["cell_key"])
    return None if cell is None else changed(cell.inputs, row["sources"] or {OWN_CODE: ""})


def _check(
    folder: RunFolder, plan: Plan, cells: Sequence[Cell], *, fresh: bool, keep: bool, here: bool, beside: bool
) -> None:
    """Refuse cells that cannot run `here`, or that other code measured, or measures now. Raises: SpecError, HostError.

    Args:
        beside: whether others may be measuring.
    """
    if not fresh and not keep:
        folder.refuse_mixed_code(partial(_other_code, {cell.key: cell for cell in cells}))
        if beside:
            _refuse_other_code(folder, plan)
    if here:
        todo = pending(cells, plan.spec.run.repeats, folder, this_host())
        check_host(cells if fresh else [item.cell for item in todo])


def _measured(
    plan: Plan,
    folder: RunFolder,
    held: RunLock,
    cells: Sequence[Cell],
    jobs: int | None,
    *,
    again: bool,
    draw: bool,
    cluster: Cluster | None = None,
) -> Tally:
    """Measure as one worker of the run.

    Args:
        again: whether what failed before is tried again.
    """
    todo = pending(cells, plan.spec.run.repeats, folder, this_host())
    tally = Tally()
    say = Reporter(len(todo))
    _announce(plan, folder, len(cells), len(todo), say)
    held.share()
    if todo and cluster is not None:
        tally = cluster(cells, plan.spec.run.repeats, folder, say)
    elif todo:
        with closing(SharedRun(folder.path, Watch(folder.path), again=again)) as shared:
            tally = execute(todo, shared, jobs, ThisHost().capacity(), say)
    elsewhere = len(todo) - tally.ok - len(tally.failed)
    if elsewhere and cluster is None:
        say.say(f"{tally.ok} of {len(todo)} repetitions were measured by this process, {elsewhere} by others")
    if held.is_last():
        Watch(folder.path).living()  # buries those that were killed, unless a file system without locks hides some
        sweep(folder.path)
        _derive(folder, draw)
    return tally


def _announce(plan: Plan, folder: RunFolder, cells: int, todo: int, say: Reporter) -> None:
    content = folder.read()
    for line in filter(None, [*(str(folder.path / problem) for problem in content.problems), content.note]):
        say.say(line)
    total = cells * plan.spec.run.repeats
    say.say(f"{plan.spec.name}: {cells} cells x {plan.spec.run.repeats} = {total} reps, {todo} to do")
    workers = Watch(folder.path).candidates()
    if workers:
        say.say(f"also measuring this run, unless dead: {listed(workers, _MOST_NAMES)}")
    if todo:
        for line in explained(plan):
            say.say(line)


@contextmanager
def _writable(folder: RunFolder) -> Iterator[None]:
    """Report a full disk and the like in one line. Raises: HostError."""
    try:
        yield
    except OSError as error:
        raise HostError(f"{error.filename or folder.path}: {in_words(error)}; finished repetitions are kept") from None


def _derive(folder: RunFolder, draw: bool) -> None:
    """Rebuild the files that are derived from the rows."""
    from wanbench.harness.show.tables import write_parquet

    rows = folder.rows()
    write_parquet(rows, folder.path / "results.parquet")
    if draw and any(row["status"] == "ok" and row["workers"] > 1 for row in rows):
        from wanbench.harness.results.evidence import Evidence
        from wanbench.harness.show.figures import draw_all
        from wanbench.harness.show.figures.drawing import FORMATS

        figures = folder.path / "figures"
        drawn = draw_all(rows, folder.name, figures, evidence=Evidence(folder))
        # Partial results can have led to other figures than the complete ones.
        for path in figures.iterdir():
            if path.suffix[1:] in FORMATS and path not in drawn:
                path.unlink()
