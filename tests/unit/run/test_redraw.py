"""Figures are redrawn while results come in, and that takes little of the time."""

from __future__ import annotations

import pytest

from wanbench.harness.run import session


class Host:
    """A clock, and drawings that last some time."""

    def __init__(self, drawing_s: float) -> None:
        self.now, self.drawing_s, self.began = 0.0, drawing_s, []

    def monotonic(self) -> float:
        return self.now

    def popen(self, *_, **__) -> Host:
        self.began.append(self.now)
        return self

    def poll(self) -> int | None:
        return 0 if self.now >= self.began[-1] + self.drawing_s else None


@pytest.mark.parametrize(("drawing_s", "times"), [(1, 180), (30, 12), (400, 1)])
def test_drawing_takes_at_most_a_tenth_of_the_time_however_many_repetitions_it_shows(
    drawing_s, times, tmp_path, monkeypatch
):
    host = Host(drawing_s)
    monkeypatch.setattr(session.time, "monotonic", host.monotonic)
    monkeypatch.setattr(session.subprocess, "Popen", host.popen)
    redrawer = session.Redrawer(tmp_path)
    for _ in range(3600):
        host.now += 1
        redrawer.changed()
    assert len(host.began) == pytest.approx(times, abs=1)
