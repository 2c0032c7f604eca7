"""Scalability with strong scaling: all workers share the work of one."""

from __future__ import annotations

import pytest

from wanbench.harness.results.scalability import formula, rescale


def row(workers, step_time_s, scaling):
    return {
        "run": "r", "cell_key": f"{workers}", "base_key": "1", "workers": workers, "status": "ok",
        "step_time_s": step_time_s, "scaling": scaling, "scalability": None,
    }  # fmt: skip


@pytest.mark.parametrize(("scaling", "ideal_s"), [("weak", 1.0), ("strong", 0.25), (None, 1.0)])
def test_the_ideal_is_one_whether_a_step_is_to_take_as_long_or_a_fourth(scaling, ideal_s):
    rows = [row(1, 1.0, scaling), row(4, ideal_s, scaling), row(4, 2 * ideal_s, scaling)]
    rescale(rows)
    assert [one["scalability"] for one in rows[1:]] == [1.0, 0.5]


def test_what_is_shown_says_which_it_is():
    assert formula([row(4, 1.0, "weak"), row(4, 1.0, None)]) == "T(1) / T(N)"
    assert formula([row(4, 1.0, "strong")]) == "T(1) / (N T(N))"
