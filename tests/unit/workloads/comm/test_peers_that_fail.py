"""Each collective while one rank is killed, stopped or slow: an error that names it on all others, and no hang.

Ranks are processes. The rank that fails sends slowly, so it always fails in the middle of the operation. Most of the
time is waiting, so several collectives run at a time.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from collectives import COLLECTIVES
from failing_ranks import Outcome, ranks

LIMIT_S, UNLIMITED_S = 1.5, 30.0
# For the words of a rank that knows better, and for a host that is busy; much less than UNLIMITED_S.
SLACK_S = 15.0
MIDDLE_S, PAUSE_S = 0.2, 0.5
AT_A_TIME = 4


def check_all(check: Callable[[str, str], None], collectives: Iterable[str], folder: Path) -> None:
    """Call `check(collective, rendezvous)` for each collective."""
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        checks = [pool.submit(check, each, str(folder / each)) for each in collectives]
    if errors := [error for done in checks if (error := done.exception()) is not None]:
        raise BaseExceptionGroup("collectives", errors)


def others(collective: str) -> list[int]:
    what = COLLECTIVES[collective]
    return [rank for rank in range(len(what.site_of)) if rank != what.victim]


def check_named(outcomes: list[Outcome], victim: int, within_s: float) -> None:
    for outcome in outcomes:
        assert f"rank {victim}" in outcome.error, outcomes
        assert outcome.seconds < within_s, outcomes
        assert outcome.left == []


def test_a_killed_rank_is_named_at_once_on_every_other_rank(tmp_path):
    check_all(check_killed, COLLECTIVES, tmp_path)


def check_killed(collective: str, rendezvous: str) -> None:
    victim, survivors = COLLECTIVES[collective].victim, others(collective)
    with ranks(collective, rendezvous, UNLIMITED_S) as group:
        group.say([*survivors, victim], "go")
        time.sleep(MIDDLE_S)
        group.signal(victim, signal.SIGKILL)
        group.hear(survivors)
        group.say(survivors, "close")
        check_named(group.hear(survivors), victim, MIDDLE_S + SLACK_S)


def test_a_stopped_rank_is_named_within_the_time_limit_and_told_when_it_goes_on(tmp_path):
    check_all(check_stopped, COLLECTIVES, tmp_path)


def check_stopped(collective: str, rendezvous: str) -> None:
    victim, survivors = COLLECTIVES[collective].victim, others(collective)
    with ranks(collective, rendezvous, LIMIT_S) as group:
        group.say([*survivors, victim], "go")
        time.sleep(MIDDLE_S)
        group.signal(victim, signal.SIGSTOP)
        group.hear(survivors)
        group.signal(victim, signal.SIGCONT)
        everyone = [*survivors, victim]
        if group.hear([victim]) == [""]:  # all that it needs of the others, as in a reduce_scatter, had arrived
            group.say([victim], "go")
            group.hear([victim])
        group.say(everyone, "close")
        outcomes = group.hear(everyone)
        check_named(outcomes[:-1], victim, LIMIT_S + SLACK_S)
        assert outcomes[-1].error, "the rank that was stopped learns that the others have given up"
        assert outcomes[-1].left == []


@pytest.mark.long  # a rank that is stopped for too long is named each time
def test_a_rank_that_is_slow_but_in_time_is_no_error(tmp_path):
    check_all(check_slow, ["two-phase all_reduce", "ring", "hierarchical, a member fails"], tmp_path)


def check_slow(collective: str, rendezvous: str) -> None:
    victim, survivors = COLLECTIVES[collective].victim, others(collective)
    everyone = sorted([*survivors, victim])
    with ranks(collective, rendezvous, UNLIMITED_S) as group:
        group.say(everyone, "go")
        time.sleep(MIDDLE_S)
        group.signal(victim, signal.SIGSTOP)
        time.sleep(PAUSE_S)
        group.signal(victim, signal.SIGCONT)
        group.hear(everyone)
        group.say(everyone, "close")
        outcomes = group.hear(everyone)
    assert [outcome.error for outcome in outcomes] == [""] * len(everyone)
    assert all(outcome.left == [] for outcome in outcomes)
    assert max(outcome.seconds for outcome in outcomes) > MIDDLE_S + PAUSE_S
