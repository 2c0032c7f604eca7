"""Any number of processes share a run: each repetition has one owner, and is published once, whoever is killed."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest
from test_store import cells, fail, finish, row

from wanbench.harness.results import store
from wanbench.harness.results.claims import Answer, SharedRun, Watch
from wanbench.harness.results.store import RunFolder

FIRST, CELL, *_ = cells()


class Dead(Watch):
    """A watch that knows who is dead."""

    def __init__(self, run):
        super().__init__(run)
        self.names = set()

    def is_dead(self, name):
        return name in self.names


@pytest.fixture
def made(tmp_path):
    """Makes workers of one run, each with the watch that it asks."""
    run = tmp_path / "t"
    RunFolder(run).prepare("the spec\n", {"name": "t"}, {"code": ["c"]})
    workers = []

    def make(**options):
        watch = Dead(run)
        workers.append(SharedRun(run, watch, **options))
        return workers[-1], watch

    yield make
    for worker in workers:
        worker.close()


def test_a_repetition_has_one_owner_until_it_is_given_back(made):
    (mine, _), (theirs, _) = made(), made()
    assert mine.take(CELL, 0) is Answer.MINE
    assert mine.take(CELL, 0) is Answer.MINE
    assert theirs.take(CELL, 0) is Answer.ELSEWHERE
    assert theirs.take(CELL, 1) is Answer.MINE
    mine.close()
    assert theirs.take(CELL, 0) is Answer.MINE


def test_who_ends_while_nothing_is_claimed_takes_no_claim_from_others(made):
    (mine, _), (theirs, _) = made(), made()
    theirs.close()
    assert mine.take(CELL, 0) is Answer.MINE


def test_of_many_that_ask_at_once_one_gets_it(made):
    for rep in range(20):
        askers = [made()[0] for _ in range(4)]
        answers = []
        barrier = threading.Barrier(len(askers))

        def ask(claims, rep=rep, answers=answers, barrier=barrier):
            barrier.wait()
            answers.append(claims.take(CELL, rep))

        threads = [threading.Thread(target=ask, args=(each,)) for each in askers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answer.value for answer in answers) == ["elsewhere"] * 3 + ["mine"]


def test_the_repetition_of_a_dead_worker_is_taken_over_by_one(made):
    (dead, _), (mine, watch), (third, thirds) = made(), made(), made()
    assert dead.take(CELL, 0) is Answer.MINE
    assert mine.take(CELL, 0) is Answer.ELSEWHERE
    watch.names.add(dead.journals.name)
    thirds.names.add(dead.journals.name)
    assert mine.take(CELL, 0) is Answer.MINE
    assert third.take(CELL, 0) is Answer.ELSEWHERE
    assert dead.take(CELL, 0) is Answer.ELSEWHERE  # it lives after all, and sees that it lost
    assert [each.has(CELL, 0) for each in (dead, mine, third)] == [False, True, False]


def ends(folder, part, how):
    """How a worker ends its repetition."""
    if how == "ok":
        return folder.finish(CELL, 0, part, row(CELL, 0, step_time_s=2.0))
    return folder.fail(CELL, 0, part, {"row": row(CELL, 0, status=how), "log_tail": []})


@pytest.mark.parametrize("how", ["ok", "failed", "invalid"])
@pytest.mark.parametrize("begun", ["before", "after"])
def test_who_was_taken_for_dead_and_goes_on_keeps_nothing_and_cancels_nothing(made, how, begun):
    (late, _), (mine, watch) = made(), made()
    assert late.take(CELL, 0) is Answer.MINE
    late_part = late.begin(CELL, 0) if begun == "before" else None  # it stops
    watch.names.add(late.journals.name)
    assert mine.take(CELL, 0) is Answer.MINE
    part = mine.begin(CELL, 0)
    late_part = late_part or late.begin(CELL, 0)  # it goes on

    assert ends(late, late_part, how) is None
    late.release(CELL, 0)
    assert not late_part.exists()
    assert mine.has(CELL, 0)
    assert mine.failures(CELL, 0) == []
    assert mine.finish(CELL, 0, part, row(CELL, 0, step_time_s=1.0)) is not None
    mine.release(CELL, 0)
    assert [each["step_time_s"] for each in mine.rows()] == [1.0]
    assert {each.take(CELL, 0) for each in (mine, late)} == {Answer.SETTLED}
    assert [*mine.path.glob("claims/*~*")] == []


@pytest.mark.parametrize("how", ["ok", "failed", "invalid"])
def test_who_stops_while_it_publishes_keeps_nothing_either(made, monkeypatch, how):
    (late, _), (mine, watch) = made(), made()
    assert late.take(CELL, 0) is Answer.MINE
    late_part, writes = late.begin(CELL, 0), store.write_json

    def taken_over(path, data):
        monkeypatch.undo()
        writes(path, data)
        watch.names.add(late.journals.name)
        assert mine.take(CELL, 0) is Answer.MINE

    monkeypatch.setattr(store, "write_json", taken_over)
    assert ends(late, late_part, how) is None
    assert mine.rows() == []
    assert mine.has(CELL, 0)


def test_what_was_published_before_it_is_taken_over_stays(made, monkeypatch):
    (slow, _), (mine, watch) = made(), made()
    assert slow.take(CELL, 0) is Answer.MINE
    part = slow.begin(CELL, 0)
    watch.names.add(slow.journals.name)
    real = mine._watch.bury

    def published_meanwhile(name):
        real(name)
        assert RunFolder.finish(slow, CELL, 0, part, row(CELL, 0, step_time_s=2.0)) is not None

    monkeypatch.setattr(mine._watch, "bury", published_meanwhile)
    assert mine.take(CELL, 0) is Answer.SETTLED
    assert [each["step_time_s"] for each in mine.rows()] == [2.0]


def test_a_worker_that_ends_after_its_repetition_was_taken_over_leaves_it_to_its_successor(made):
    (late, _), (mine, watch), (third, _) = made(), made(), made()
    assert late.take(CELL, 0) is Answer.MINE
    watch.names.add(late.journals.name)
    assert mine.take(CELL, 0) is Answer.MINE
    late.close()
    assert third.take(CELL, 0) is Answer.ELSEWHERE
    assert mine.has(CELL, 0)
    mine.close()  # and no older claim counts again
    assert third.take(CELL, 0) is Answer.MINE


def test_who_looked_before_it_was_published_gets_nothing_after(made, monkeypatch):
    (mine, _), (late, _) = made(), made()
    looked = late.is_finished(CELL, 0)
    assert mine.take(CELL, 0) is Answer.MINE
    finish(mine, CELL, 0)
    mine.release(CELL, 0)
    answers = iter([looked])  # the first look was before
    real = late.is_settled
    monkeypatch.setattr(late, "is_settled", lambda *place: next(answers, None) or real(*place))
    assert late.take(CELL, 0) is Answer.SETTLED
    assert mine.take(CELL, 0) is Answer.SETTLED
    late.close()
    assert [path.name for path in (mine.path / "claims").glob("*~*")] == []


def test_what_failed_is_tried_again_by_a_run_that_begins_later_and_never_by_a_helper(made):
    first, _ = made()
    folder = RunFolder(first.path)
    fail(folder, CELL, 0, "it broke")
    (run, _), (helper, _) = made(), made(again=False)
    assert helper.take(CELL, 0) is Answer.SETTLED
    assert run.take(CELL, 0) is Answer.MINE
    run.release(CELL, 0)
    fail(folder, CELL, 0, "it broke again")
    assert run.take(CELL, 0) is Answer.SETTLED


def test_an_invalid_repetition_is_measured_once_more_by_anyone(made):
    (run, _), (helper, _) = made(), made(again=False)
    assert run.take(CELL, 0) is Answer.MINE
    fail(run, CELL, 0, "the host was busy", status="invalid")
    run.release(CELL, 0)
    assert helper.take(CELL, 0) is Answer.MINE
    fail(helper, CELL, 0, "the host was busy", status="invalid")
    helper.release(CELL, 0)
    assert {each.take(CELL, 0) for each in (run, helper)} == {Answer.SETTLED}


def test_each_host_has_its_own_repetition_of_a_one_worker_cell(made):
    (folder, _), (far, _) = made(), made()
    assert folder.take(FIRST, 0, "here") is Answer.MINE
    assert far.take(FIRST, 0, "there") is Answer.MINE
    near = folder.finish(FIRST, 0, folder.begin(FIRST, 0), row(FIRST, 0, host="here"), "here")
    other = far.finish(FIRST, 0, far.begin(FIRST, 0), row(FIRST, 0, host="there"), "there")
    assert (near.name, other.name) == ("rep-0", "rep-0@there")
    assert folder.is_finished(FIRST, 0)
    assert folder.is_finished(FIRST, 0, "here")
    assert folder.is_finished(FIRST, 0, "there")
    assert not folder.is_finished(FIRST, 0, "elsewhere")
    assert len(folder.rows()) == 2


def test_the_failure_of_a_one_worker_cell_shows_until_its_host_has_measured_it(made):
    first, _ = made()
    folder = RunFolder(first.path)
    folder.fail(FIRST, 0, folder.begin(FIRST, 0), {"row": row(FIRST, 0, status="failed", host="there"), "log_tail": []})
    folder.finish(FIRST, 0, folder.begin(FIRST, 0), row(FIRST, 0, host="here"), "here")
    assert {(each["host"], each["status"]) for each in folder.rows()} == {("here", "ok"), ("there", "failed")}
    folder.finish(FIRST, 0, folder.begin(FIRST, 0), row(FIRST, 0, host="there"), "there")
    assert {(each["host"], each["status"]) for each in folder.rows()} == {("here", "ok"), ("there", "ok")}


def test_what_is_not_a_result_is_measured_again_and_kept_beside_it(made):
    run, _ = made()
    assert run.take(CELL, 0) is Answer.MINE
    finish(run, CELL, 0)
    result = run.cell_folder(CELL) / "rep-0" / "result.json"
    result.write_text("{")
    assert run.take(CELL, 0) is Answer.MINE
    finish(run, CELL, 0)
    assert len(run.rows()) == 1
    assert (run.cell_folder(CELL) / "rep-0.damaged-1" / "result.json").read_text() == "{"


@pytest.mark.parametrize("cause", [errno.EACCES, errno.EIO, errno.ESTALE, errno.EMFILE])
def test_a_result_that_cannot_be_read_just_now_is_an_error_and_stays(made, monkeypatch, cause):
    run, _ = made()
    assert run.take(CELL, 0) is Answer.MINE
    finish(run, CELL, 0)
    (before,) = run.rows()
    part, stat = run.begin(CELL, 0), Path.stat

    def refused(path, **options):
        if path.name == "result.json" and path.parent.name == "rep-0":
            raise OSError(cause, os.strerror(cause), str(path))
        return stat(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", refused)
        for ask in (run.is_finished, run.take):
            with pytest.raises(OSError, match=os.strerror(cause)):
                ask(CELL, 0)
        with pytest.raises(OSError, match=os.strerror(cause)):
            run.finish(CELL, 0, part, row(CELL, 0, step_time_s=9.0))
        assert run.read().problems == [f"cells/{CELL.slug}/rep-0/result.json: cannot be read ({os.strerror(cause)})"]
    assert run.rows() == [before]
