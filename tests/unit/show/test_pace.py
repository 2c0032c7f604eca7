"""Step time against time: changes are labelled where there is room, and labels never overlap."""

import pandas as pd
import pytest
from legible import assert_nothing_overlaps

from wanbench.harness.results.evidence import Evidence
from wanbench.harness.results.store import RunFolder
from wanbench.harness.show.figures.style import COLUMN_IN, PAGE_IN
from wanbench.harness.show.figures.timeline import Pace, pace

CUT = [(6.0, "worker 3: cut off"), (11.0, "worker 3: healed")]
FLAPS = [(1 + 0.5 * n, "worker 1: cut off" if n % 2 == 0 else "worker 1: healed") for n in range(60)]
DAY = [(10.0 * hour, f"everywhere: rate × 0.{hour}") for hour in range(1, 9)] + [(90.0, "everywhere: rate as before")]


def of(label, kind, events, steps=100, step_s=0.3):
    worker = {"rank": 0, "end_s": [step_s * (step + 1) for step in range(steps)], "step_time_s": [step_s] * steps}
    return Pace(label, kind, {}, worker, {**worker, "rank": 1}, events)


def names(figure):
    return [[text.get_text() for text in axes.texts if text.get_text()] for axes in figure.axes]


@pytest.mark.parametrize("width_in", [pytest.param(PAGE_IN, marks=pytest.mark.long), COLUMN_IN])
@pytest.mark.parametrize("events", [CUT, DAY, FLAPS])
def test_no_text_overlaps_or_is_cut(width_in, events):
    paces = [of("ssgd", "ssgd", events, steps=400), of("sgp-w200ms", "sgp", events)]
    assert_nothing_overlaps(pace(paces, "resnet50-v100, direct all-reduce: step time against time", "about", width_in))


def test_changes_with_room_are_named_and_those_without_are_not():
    assert names(pace([of("ssgd", "ssgd", CUT)], "title", "about")) == [["worker 3: cut off", "worker 3: healed"]]
    close = [(6.0, "worker 3: cut off"), (6.1, "worker 3: healed")]
    assert names(pace([of("ssgd", "ssgd", close)], "title", "about")) == [["worker 3: healed"]]


def test_a_worker_that_was_killed_for_good_is_not_the_fastest(tmp_path):
    """Worker 1 dies after 30 of 100 steps; worker 0 ends before worker 2."""
    ends_s = {0: [0.1 * step for step in range(1, 101)], 1: [0.1 * step for step in range(1, 31)]}
    ends_s[2] = [0.2 * step for step in range(1, 101)]
    rep = tmp_path / "cells" / "ours" / "rep-0"
    rep.mkdir(parents=True)
    rows = [
        {"rank": rank, "step": step, "end_ns": round(end_s * 1e9), "step_time_s": 0.1}
        for rank, ends in ends_s.items()
        for step, end_s in enumerate(ends)
    ]
    pd.DataFrame(rows).to_parquet(rep / "steps.parquet")
    row = {"cell": "ours", "rep": 0, "events": [{"what": "", "asked_s": 0, "actual_s": 3.0, "at_ns": 3_000_000_000}]}
    found = Evidence(RunFolder(tmp_path)).pace(row)
    assert {which: worker["rank"] for which, worker in found.items()} == {"slowest": 2, "fastest": 0}
