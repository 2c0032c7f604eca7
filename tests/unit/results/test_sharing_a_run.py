"""Any number of processes share a run: each repetition has one owner, and is published once, whoever is killed."""

from __future__ import annotations

import threading

import pytest
from test_store import cells, fail, finish, row

from wanbench.harness.results.claims import Answer, Claims
from wanbench.harness.results.store import RunFolder
from wanbench.harness.results.workers import Watch, Worker

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
    """Makes workers of one run: (folder, claims, watch) each."""
    run = tmp_path / "t"
    RunFolder(run).prepare("the spec\n", {"name": "t"}, {"code": ["c"]})
    workers = []

    def make(**options):
        worker = Worker(run)
        workers.append(worker)
        folder, watch = RunFolder(run, worker), Dead(run)
        return folder, Claims(folder, worker, watch, **options), watch

    yield make
    for worker in workers:
        worker.close()


def test_a_repetition_has_one_owner_until_it_is_given_back(made):
    _, mine, _ = made()
    _, theirs, _ = made()
    assert mine.take(CELL, 0) is Answer.MINE
    assert mine.take(CELL, 0) is Answer.MINE
    assert theirs.take(CELL, 0) is Answer.ELSEWHERE
    assert theirs.take(CELL, 1) is Answer.MINE
    mine.close()
    assert theirs.take(CELL, 0) is Answer.MINE


def test_who_ends_while_nothing_is_claimed_takes_no_claim_from_others(made):
    _, mine, _ = made()
    _, theirs, _ = made()
    theirs.close()
    assert mine.take(CELL, 0) is Answer.MINE


def test_of_many_that_ask_at_once_one_gets_it(made):
    for rep in range(20):
        askers = [made()[1] for _ in range(4)]
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


def test_the_repetition_of_a_dead_worker_is_taken_over_by_one_and_the_late_loser_discards_its_own(made):
    dead_folder, dead, _ = made()
    folder, mine, watch = made()
    _, third, thirds = made()
    assert dead.take(CELL, 0) is Answer.MINE
    late = dead_folder.begin(CELL, 0)
    assert mine.take(CELL, 0) is Answer.ELSEWHERE
    dead_name = dead_folder.journals.name
    watch.names.add(dead_name)
    thirds.names.add(dead_name)
    assert mine.take(CELL, 0) is Answer.MINE
    assert third.take(CELL, 0) is Answer.ELSEWHERE
    assert dead.take(CELL, 0) is Answer.ELSEWHERE  # it lives after all, and sees that it lost

    part = folder.begin(CELL, 0)
    assert part != late
    assert folder.finish(CELL, 0, part, row(CELL, 0, step_time_s=1.0)) is not None
    assert dead_folder.finish(CELL, 0, late, row(CELL, 0, step_time_s=2.0)) is None
    assert not late.exists()
    assert [each["step_time_s"] for each in folder.rows()] == [1.0]
    mine.release(CELL, 0)
    assert {each.take(CELL, 0) for each in (mine, third, dead)} == {Answer.SETTLED}


def test_who_looked_before_it_was_published_gets_nothing_after(made, monkeypatch):
    folder, mine, _ = made()
    late_folder, late, _ = made()
    looked = late_folder.is_finished(CELL, 0)
    assert mine.take(CELL, 0) is Answer.MINE
    finish(folder, CELL, 0)
    mine.release(CELL, 0)
    answers = iter([looked])  # the first look was before
    real = late.is_settled
    monkeypatch.setattr(late, "is_settled", lambda *place: next(answers, None) or real(*place))
    assert late.take(CELL, 0) is Answer.SETTLED
    assert mine.take(CELL, 0) is Answer.SETTLED
    late.close()
    assert [path.name for path in (folder.path / "claims").glob("*~*")] == []


def test_what_failed_is_tried_again_by_a_run_that_begins_later_and_never_by_a_helper(made):
    folder, _, _ = made()
    fail(folder, CELL, 0, "it broke")
    _, run, _ = made()
    _, helper, _ = made(again=False)
    assert helper.take(CELL, 0) is Answer.SETTLED
    assert run.take(CELL, 0) is Answer.MINE
    run.close()
    fail(folder, CELL, 0, "it broke again")
    assert run.take(CELL, 0) is Answer.SETTLED


def test_an_invalid_repetition_is_measured_once_more_by_anyone(made):
    folder, _, _ = made()
    _, helper, _ = made(again=False)
    fail(folder, CELL, 0, "the host was busy", status="invalid")
    assert helper.take(CELL, 0) is Answer.MINE
    fail(folder, CELL, 0, "the host was busy", status="invalid")
    assert helper.take(CELL, 0) is Answer.SETTLED


def test_each_host_has_its_own_repetition_of_a_one_worker_cell(made):
    folder, mine, _ = made()
    far, theirs, _ = made()
    assert mine.take(FIRST, 0, "here") is Answer.MINE
    assert theirs.take(FIRST, 0, "there") is Answer.MINE
    near = folder.finish(FIRST, 0, folder.begin(FIRST, 0), row(FIRST, 0, host="here"), "here")
    other = far.finish(FIRST, 0, far.begin(FIRST, 0), row(FIRST, 0, host="there"), "there")
    assert (near.name, other.name) == ("rep-0", "rep-0@there")
    assert folder.is_finished(FIRST, 0)
    assert folder.is_finished(FIRST, 0, "here")
    assert folder.is_finished(FIRST, 0, "there")
    assert not folder.is_finished(FIRST, 0, "elsewhere")
    assert len(folder.rows()) == 2


def test_the_failure_of_a_one_worker_cell_shows_until_its_host_has_measured_it(made):
    folder, _, _ = made()
    folder.fail(FIRST, 0, folder.begin(FIRST, 0), {"row": row(FIRST, 0, status="failed", host="there"), "log_tail": []})
    folder.finish(FIRST, 0, folder.begin(FIRST, 0), row(FIRST, 0, host="here"), "here")
    assert {(each["host"], each["status"]) for each in folder.rows()} == {("here", "ok"), ("there", "failed")}
    folder.finish(FIRST, 0, folder.begin(FIRST, 0), row(FIRST, 0, host="there"), "there")
    assert {(each["host"], each["status"]) for each in folder.rows()} == {("here", "ok"), ("there", "ok")}


def test_a_result_that_cannot_be_read_is_replaced(made):
    folder, mine, _ = made()
    finish(folder, CELL, 0)
    (folder.cell_folder(CELL) / "rep-0" / "result.json").write_text("{")
    assert mine.take(CELL, 0) is Answer.MINE
    finish(folder, CELL, 0)
    assert len(folder.rows()) == 1
