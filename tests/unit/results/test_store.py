"""What is on disk is the only state: finished is one rename, resuming is the plan minus what is finished."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from on_relay import expand

from wanbench.harness.errors import HostError, SpecError
from wanbench.harness.plan.cell import Cell
from wanbench.harness.results.claims import sweep
from wanbench.harness.results.disk import write_json, write_text
from wanbench.harness.results.row import describe
from wanbench.harness.results.store import RunFolder
from wanbench.harness.run.session import pending
from wanbench.harness.spec.experiment import Spec

TEXT = """\
schema = 1
name = "t"
[workload]
params = 1000
step_time = "10ms"
[algorithms]
ssgd = {}
sparse = { period = 4 }
[sweep]
workers = [2]
rtt = ["10ms", "20ms"]
"""


def cells(text: str = TEXT) -> list[Cell]:
    return expand(Spec.from_toml(text, "x.toml"), "x.toml")


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    run = RunFolder(tmp_path / "results" / "t")
    run.prepare("the spec\n", {"name": "t"}, {"code": ["c"]})
    return run


def row(cell: Cell, rep: int, **fields) -> dict:
    return {
        **describe(cell, rep),
        "run": "t",
        "code": "c",
        "status": "ok",
        "step_time_s": 0.02,
        "evidence": {},
        **fields,
    }


def finish(folder: RunFolder, cell: Cell, rep: int, **fields) -> None:
    folder.finish(cell, rep, folder.begin(cell, rep), row(cell, rep, **fields))


def fail(folder: RunFolder, cell: Cell, rep: int, reason: str, status: str = "failed"):
    error = {"row": row(cell, rep, status=status, reason=reason), "log_tail": []}
    return folder.fail(cell, rep, folder.begin(cell, rep), error)


# ---------------------------------------------------------------- finished, or not


def test_a_repetition_is_finished_by_its_rename_and_not_before(folder):
    cell = cells()[1]
    part = folder.begin(cell, 0)
    write_json(part / "result.json", row(cell, 0))
    assert not folder.is_finished(cell, 0)
    assert folder.rows() == []
    final = folder.finish(cell, 0, part, row(cell, 0, step_time_s=0.5))
    assert folder.is_finished(cell, 0)
    assert not part.exists()
    assert final == folder.path / "cells" / cell.slug / "rep-0"
    assert folder.rows() == [row(cell, 0, step_time_s=0.5)]


def test_a_cell_is_stored_with_what_decides_its_identity(folder):
    cell = cells()[1]
    finish(folder, cell, 0)
    stored = json.loads((folder.cell_folder(cell) / "cell.json").read_text())
    assert stored == {"identity": cell.identity(), "axes": cell.axes, "base_key": cell.base_key}


def test_resuming_is_the_plan_minus_what_is_finished(folder):
    plan = cells()
    finish(folder, plan[0], 0)
    finish(folder, plan[2], 1)
    left = {(item.cell.slug, item.rep) for item in pending(plan, 2, folder, "here")}
    everything = {(cell.slug, rep) for cell in plan for rep in (0, 1)}
    assert left == everything - {(plan[0].slug, 0), (plan[2].slug, 1)}


def test_one_worker_cells_come_first_and_every_cell_has_a_repetition_before_any_has_two(folder):
    plan = cells()
    order = pending(plan, 2, folder, "here")
    assert [item.rep for item in order] == [0] * len(plan) + [1] * len(plan)
    assert order[0].cell.is_baseline
    assert order[len(plan)].cell.is_baseline
    seconds = [item.load.seconds for item in order[1 : len(plan)]]
    assert seconds == sorted(seconds, reverse=True)


def test_more_repeats_keep_those_there_are(folder):
    plan = cells()
    for cell in plan:
        finish(folder, cell, 0)
    assert {item.rep for item in pending(plan, 3, folder, "here")} == {1, 2}


def test_a_one_worker_cell_of_another_host_is_measured_here_only_if_something_is_divided_by_it(folder):
    alone, *others = cells()
    finish(folder, alone, 0, host="there")
    here = {(item.cell.slug, item.host) for item in pending([alone, *others], 1, folder, "here")}
    assert here == {(alone.slug, "here"), *((cell.slug, None) for cell in others)}
    there = {item.cell.slug for item in pending([alone, *others], 1, folder, "there")}
    assert there == {cell.slug for cell in others}
    for cell in others:
        finish(folder, cell, 0, host="there")
    assert pending([alone, *others], 1, folder, "here") == []


def test_leftovers_of_an_interrupted_try_are_ignored_and_removed(folder):
    cell = cells()[1]
    leftover = folder.begin(cell, 0)
    (leftover / "half.log").write_text("x")
    assert not folder.is_finished(cell, 0)
    assert folder.rows() == []
    again = folder.begin(cell, 0)
    assert again == leftover
    assert list(again.iterdir()) == []


def test_an_axis_that_comes_later_keeps_what_is_finished(folder):
    before = cells()
    finish(folder, before[1], 0)
    (same,) = [c for c in cells(TEXT + 'collective = ["direct", "gloo"]\n') if c.key == before[1].key]
    assert same.slug != before[1].slug
    assert folder.is_finished(same, 0)
    finish(folder, same, 1)
    assert {found["cell"] for found in folder.rows()} == {before[1].slug}


# ---------------------------------------------------------------- failures


def test_failed_tries_are_kept_counted_and_shown_until_one_succeeds(folder):
    cell = cells()[1]
    first = fail(folder, cell, 0, "worker 1 died")
    second = fail(folder, cell, 0, "late", status="invalid")
    assert [path.name for path in (first, second)] == ["rep-0.failed-1", "rep-0.failed-2"]
    assert [row["reason"] for row in folder.failures(cell, 0)] == ["worker 1 died", "late"]
    assert [(found["status"], found["reason"]) for found in folder.rows()] == [("invalid", "late")]
    assert not folder.is_finished(cell, 0)
    finish(folder, cell, 0)
    assert [found["status"] for found in folder.rows()] == ["ok"]
    assert second.is_dir(), "the logs of failures stay"


def test_the_tenth_failure_comes_after_the_ninth(folder):
    cell = cells()[1]
    for number in range(1, 12):
        fail(folder, cell, 0, f"try {number}")
    assert [row["reason"] for row in folder.failures(cell, 0)] == [f"try {n}" for n in range(1, 12)]
    assert [found["reason"] for found in folder.rows()] == ["try 11"]


def test_a_failure_that_someone_deleted_does_not_get_in_the_way_of_the_next(folder):
    cell = cells()[1]
    first, _second = fail(folder, cell, 0, "a"), fail(folder, cell, 0, "b")
    (first / "error.json").unlink()
    first.rmdir()
    assert fail(folder, cell, 0, "c").name == "rep-0.failed-3"


def test_failures_of_other_repetitions_are_not_mixed_up(folder):
    cell = cells()[1]
    fail(folder, cell, 1, "one")
    fail(folder, cell, 10, "ten")
    assert [row["reason"] for row in folder.failures(cell, 1)] == ["one"]


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize("content", [b"", b'{"cell": "x"', b"{}", b"[]", b"null", b"\xff\xfe", b'{"row": null}'])
def test_a_result_that_cannot_be_read_hides_no_other_and_is_measured_again(folder, content):
    damaged, good = cells()[1], cells()[2]
    finish(folder, damaged, 0)
    finish(folder, good, 0)
    (folder.cell_folder(damaged) / "rep-0" / "result.json").write_bytes(content)
    assert folder.rows() == [row(good, 0)]
    assert not folder.is_finished(damaged, 0)
    finish(folder, damaged, 0, step_time_s=1.0)
    assert {found["cell"] for found in folder.rows()} == {damaged.slug, good.slug}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"workers": None}, "workers: missing"),
        ({"status": "fine"}, "status: expected ok, invalid or failed, got 'fine'"),
        ({"step_time_s": None}, "step_time_s: missing"),
        ({"step_time_s": -1}, "step_time_s: expected a number above 0, got -1"),
        ({"step_time_s": float("inf")}, "step_time_s: expected a number above 0, got inf"),
        ({"stall_s": "long"}, "stall_s: expected a number of at least 0, got 'long'"),
        ({"algorithm": 7}, "algorithm: expected a string, got 7"),
        ({"seed": True}, "seed: expected a whole number, got True"),
        ({"axes": []}, "axes: expected an object, got []"),
        ({"params": {"delay": "x"}}, "params.delay: expected a whole number, got 'x'"),
        ({"law_inputs": {"workers": 0}}, "law_inputs: PredictInputs.__init__() missing 4 required"),
        ({"rep": 1}, "rep: expected the number in the folder's name, got 1"),
    ],
)
def test_a_row_that_is_none_is_left_out_and_named_with_the_reason(folder, change, reason):
    cell = cells()[1]
    finish(folder, cell, 0)
    path = folder.cell_folder(cell) / "rep-0" / "result.json"
    assert folder.read().rows == [row(cell, 0)]
    write_json(path, {**row(cell, 0), **change})
    found = folder.read()
    (said,) = found.problems
    assert found.rows == []
    assert said.startswith(f"{path.relative_to(folder.path)}: not a result, so not finished: {reason}")
    assert not folder.is_finished(cell, 0)


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), 1e300])
def test_training_that_diverged_is_a_result(folder, loss):
    cell = cells()[1]
    finish(folder, cell, 0, final_loss=loss)
    assert folder.is_finished(cell, 0)
    assert folder.read().problems == []


def test_lines_of_a_recording_that_are_no_results_are_named_and_hide_no_other(folder):
    good, evil, strange = row(cells()[1], 0), row(cells()[1], 1, reason="red\x1b[31m"), row(cells()[2], 0, steps=-1)
    nameless = {name: value for name, value in good.items() if name != "cell"}
    lines = [json.dumps(line) for line in (good, evil, strange, nameless)]
    (folder.path / "rows.jsonl").write_text("\n".join([*lines, lines[0][:-9]]) + "\n")
    found = folder.read()
    problems = found.problems
    assert found.rows == [good, {**evil, "reason": "red [31m"}]
    assert problems[:2] == [
        "rows.jsonl line 3: not a result: steps: expected a whole number, got -1",
        "rows.jsonl line 4: not a result: cell: missing",
    ]
    assert problems[2].startswith("rows.jsonl line 5: not a result: not JSON (")
    assert len(problems) == 3


@pytest.mark.parametrize("name", ["rep-x", "rep-0 (copy)", "rep-0.failed-x", "rep-0.failed-", "rep-"])
def test_folders_with_names_that_are_not_ours_are_left_alone(folder, name):
    cell = cells()[1]
    strange = folder.begin(cell, 0).rename(folder.cell_folder(cell) / name)
    finish(folder, cell, 0)
    assert [found["status"] for found in folder.rows()] == ["ok"]
    assert fail(folder, cell, 0, "later").name == "rep-0.failed-1"
    assert folder.failures(cell, 0)[-1]["reason"] == "later"
    assert strange.is_dir()


def test_an_error_file_that_cannot_be_read_hides_no_other(folder):
    cell = cells()[1]
    broken = fail(folder, cell, 0, "a")
    fail(folder, cell, 1, "b")
    (broken / "error.json").write_text("{")
    assert [found["reason"] for found in folder.rows()] == ["b"]
    assert folder.failures(cell, 0) == []


def test_a_file_is_replaced_in_one_step_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_text(path, "old")

    def power_cut(*_args):
        raise OSError(errno.EIO, "gone")

    monkeypatch.setattr("pathlib.Path.replace", power_cut)
    with pytest.raises(OSError, match="gone") as caught:
        write_text(path, "new")
    assert str(caught.value) == f"[Errno {errno.EIO}] gone: '{path}'"
    assert path.read_text() == "old"


def test_a_result_is_on_the_disk_before_its_name_is(folder, monkeypatch):
    done, sync, rename = [], os.fsync, Path.rename
    monkeypatch.setattr("os.fsync", lambda fd: (done.append(os.readlink(f"/proc/self/fd/{fd}")), sync(fd)))
    monkeypatch.setattr("pathlib.Path.rename", lambda *paths: (done.append("rename"), rename(*paths)))
    cell = cells()[1]
    part = folder.begin(cell, 0)
    (part / "steps.parquet").write_bytes(b"x")
    final = folder.finish(cell, 0, part, row(cell, 0))
    at = done.index("rename")
    assert set(done[:at]) == {str(part), str(part / "steps.parquet"), str(part / "result.json")}
    assert done[at - 1 :] == [str(part), "rename", str(final.parent)]


def test_what_an_interrupted_run_left_half_written_is_swept_and_nothing_else(folder):
    cell = cells()[1]
    finish(folder, cell, 0)
    broken = fail(folder, cell, 1, "x")
    left = folder.begin(cell, 2)
    (left / "half.log").write_text("x")
    (folder.path / "figures").mkdir()
    places = [folder.path, folder.path / "figures", folder.cell_folder(cell)]
    for place in places:
        (place / ".half.json.17.part").write_text("{")
        (place / "mine.part").write_text("mine")
    sweep(folder.path)
    assert not left.exists()
    assert (broken / "error.json").exists()
    assert folder.is_finished(cell, 0)
    assert all([path.name for path in place.glob("*.part")] == ["mine.part"] for place in places)


# ---------------------------------------------------------------- whose folder it is


def test_of_runs_that_begin_at_once_under_one_name_each_has_its_own_folder(tmp_path):
    barrier = threading.Barrier(16)

    def new(_):
        barrier.wait()
        return RunFolder.new(tmp_path / "results", "exec-train").path

    with ThreadPoolExecutor(16) as pool:
        paths = set(pool.map(new, range(16)))
    assert {path.name for path in paths} == {"exec-train", *(f"exec-train-{number}" for number in range(2, 17))}
    assert all(path.is_dir() for path in paths)


def test_where_no_folder_can_be_made_a_new_run_is_refused(tmp_path):
    (tmp_path / "results").write_text("a file")
    with pytest.raises(HostError, match="results/exec-train: cannot write results here"):
        RunFolder.new(tmp_path / "results", "exec-train")


def test_a_second_harness_is_refused_with_exit_code_3(folder):
    code = (
        "import sys; from pathlib import Path; from wanbench.harness.results.store import Content, RunFolder\n"
        f"with RunFolder(Path({str(folder.path)!r})).lock():\n print('locked', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with other:
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(HostError) as caught, folder.lock():
            pass
        assert str(caught.value) == (
            f"{folder.path}: another `wanbench run` is writing here; wait for it, or use --out"
        )
        assert caught.value.exit_code == 3
        other.stdin.close()
    with folder.lock():
        pass  # it is gone, so the folder is free


@pytest.mark.parametrize("action", ["lock", "prepare"])
def test_a_folder_that_cannot_be_written_is_refused_with_exit_code_3(tmp_path, action):
    (tmp_path / "results").write_text("a file")
    run = RunFolder(tmp_path / "results" / "t")
    with pytest.raises(HostError) as caught:
        run.prepare(None, {}, {}) if action == "prepare" else run.lock().__enter__()
    assert str(caught.value) == (
        f"{run.path}: cannot write results here (Not a directory); choose another folder with --out"
    )
    assert caught.value.exit_code == 3


def test_results_of_other_code_are_refused_unless_kept_or_thrown_away(folder):
    first, second, *_ = cells()
    finish(folder, first, 0, code="old")
    finish(folder, second, 0, code="new")
    with pytest.raises(SpecError) as caught:
        folder.refuse_mixed_code(differs_in({first.key: "old", second.key: "old"}))
    assert str(caught.value) == (
        f"{folder.path}: 1 repetition was measured by other code (e.g. {first.slug}: another version of lib.py); "
        "--keep keeps them, --fresh measures everything again"
    )
    folder.clear()
    folder.refuse_mixed_code(differs_in({first.key: "old", second.key: "old"}))


def differs_in(codes):
    """Return what judges rows that were measured by these codes, by cell, to be of another version of a file."""
    return lambda row: "lib.py" if codes.get(row["cell_key"]) == row["code"] else None


def test_other_code_does_not_matter_for_failures_and_for_cells_that_left_the_sweep(folder):
    first, second, *_ = cells()
    finish(folder, first, 0, code="old")
    fail(folder, second, 0, "died")
    folder.refuse_mixed_code(differs_in({second.key: "old"}))


def test_fresh_removes_all_results_and_leaves_what_others_put_there(folder):
    cell = cells()[1]
    finish(folder, cell, 0)
    fail(folder, cell, 1, "x")
    folder.event("started", cell=cell.slug)
    (folder.path / "results.parquet").write_text("x")
    (folder.path / "notes.md").write_text("mine")
    folder.clear()
    assert folder.rows() == []
    assert sorted(path.name for path in folder.path.iterdir()) == [
        "manifest.json", "notes.md", "spec.resolved.json", "spec.toml",
    ]  # fmt: skip


def test_the_journal_has_one_object_a_line_in_order(folder):
    folder.event("started", cell="a", rep=0)
    folder.event("finished", cell="a", rep=0, step_time_s=0.3)
    lines = [json.loads(line) for line in (folder.path / "events.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["started", "finished"]
    assert lines[1]["step_time_s"] == 0.3
