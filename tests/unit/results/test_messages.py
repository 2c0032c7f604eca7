"""What is noted of rank 0's messages: when each was issued, there, and used, and for how long it was waited for."""

from __future__ import annotations

import pandas as pd
import pytest

from wanbench.harness.api import run
from wanbench.harness.results.evidence import Evidence
from wanbench.harness.show.figures.gallery import gallery
from wanbench.harness.show.figures.timeline import Trace, timeline
from wanbench.harness.spec.experiment import Spec
from wanbench.workloads.comm.clock import MonotonicClock
from wanbench.workloads.comm.local import LocalComm, run_replicas
from wanbench.workloads.comm.meter import JOURNAL_LIMIT, MeteredComm

SPEC = """
schema = 1
name = "flights"
workload = { params = 1000, step_time = "30ms", step_cv = 0.0 }
network = { rtt = "200ms", tcp = { congestion = "reno" } }
algorithms = { ssgd = {}, delayed = { delay = [2, 5] } }
sweep = { workers = [2] }
run = { testbed = "virtual", repeats = 1 }
"""
MS = 1_000_000


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    return run(Spec.from_toml(SPEC, "flights"), out=tmp_path_factory.mktemp("runs"), figures=False)


def messages(measured, algorithm):
    (row,) = [row for row in measured.rows() if row["algorithm"] == algorithm]
    return pd.read_parquet(measured.path / "cells" / row["cell"] / "rep-0" / "messages.parquet")


def test_an_all_reduce_of_two_workers_is_in_flight_for_half_a_round_trip_and_used_after_its_delay(measured):
    found = messages(measured, "delayed-d5").iloc[2:20]
    assert set(found["kind"]) == {"all_reduce"}
    assert set(found["nbytes"]) == {4000}
    assert ((found["ended_ns"] - found["issued_ns"]) / MS).tolist() == pytest.approx([100.0] * len(found), abs=0.1)
    # Issued at the end of a step, used at the end of the fifth one after it: nobody waited.
    assert ((found["collected_ns"] - found["issued_ns"]) / MS).tolist() == pytest.approx([150.0] * len(found), abs=0.1)
    assert not found["stall_ns"].any()


def test_what_is_late_is_waited_for_and_adds_up_to_the_stall(measured):
    found = messages(measured, "delayed-d2").iloc[3:18]
    assert (found["collected_ns"] == found["ended_ns"]).all()
    steps = found["stall_ns"].mean() / MS
    # Of half a round trip two steps of 30 ms hide 60 ms; the other 40 ms are waited for once in three steps.
    assert steps == pytest.approx(40 / 3, rel=0.02)


def test_the_timeline_shows_as_many_stalls_as_there_were(measured):
    by_name = {drawing.name: drawing for drawing in gallery(measured.rows(), "flights", Evidence(measured.folder))}
    figure = by_name["timeline"].draw(7.0)
    assert [axes.get_title(loc="left").split(":")[0] for axes in figure.axes] == ["SSGD", "delayed d2", "delayed d5"]
    hatched = [len([patch for patch in axes.patches if patch.get_hatch()]) for axes in figure.axes]
    assert hatched[0] >= 2
    assert hatched[2] == 0


def test_a_run_without_messages_has_no_timeline(measured, tmp_path):
    class Nothing(Evidence):
        def trace(self, row):
            return None

    names = [drawing.name for drawing in gallery(measured.rows(), "flights", Nothing(measured.folder))]
    assert "timeline" not in names


def test_where_arrival_is_not_known_a_message_flies_until_it_is_used():
    """gloo does not tell when an operation has ended."""
    steps = pd.DataFrame({"step": [0, 1], "end_ns": [1e9, 2e9], "step_time_s": [1.0, 1.0], "compute_s": [1.0, 1.0]})
    flight = {"kind": ["all_reduce"], "nbytes": [8], "issued_ns": [0.5e9], "ended_ns": [None], "collected_ns": [1.5e9]}
    trace = Trace("ssgd", steps, pd.DataFrame({**flight, "stall_ns": [0]}), 0)
    (axes,) = timeline([trace], "t", "a").axes
    widths = [patch.get_width() for patch in axes.patches if patch.get_height() == pytest.approx(0.7)]
    assert widths == [1.0]


def test_only_so_many_messages_are_noted_and_none_unless_asked():
    def body(comm: LocalComm) -> tuple[int, int]:
        import torch

        metered = MeteredComm(comm, MonotonicClock())
        metered.all_reduce(torch.zeros(1)).wait()
        metered.journal = []
        for _ in range(JOURNAL_LIMIT + 5):
            metered.all_reduce(torch.zeros(1)).wait()
        return len(metered.journal), metered.messages_sent

    assert run_replicas(2, body) == [(JOURNAL_LIMIT, JOURNAL_LIMIT + 6)] * 2
