"""The buffers of hosts on the simulated clock: the law agrees, and no connection carries more than its window."""

from __future__ import annotations

import pytest
from small_spec import edited, swept

from wanbench.harness.rep.measure import measure
from wanbench.harness.testbeds.virtual.testbed import VirtualTestbed

FAR = [
    ("params = 1000\n", "params = 10_000_000\n"),
    ('rtt = ["10ms"]', 'rtt = ["100ms"]'),
]


def stock(
    collective: str,
    kind: str,
    congestion: str = "cubic",
    *,
    tensors: int = 2,
    buckets: str = "1GiB",
    rate: str = "2Gbit",
):
    tcp = f'tcp = {{ preset = "stock", congestion = "{congestion}", slow_start_after_idle = false }}'
    (cell,) = swept(
        edited(
            *FAR,
            ('rate = "1Gbit"', f'rate = "{rate}"\n{tcp}'),
            ("ssgd = {}", kind),
            ("workers = [2]", "workers = [3]"),
            ("tensors = 2", f"tensors = {tensors}"),
            ("[sweep]", f'[comm]\ncollective = "{collective}"\nbuckets = "{buckets}"\n\n[sweep]'),
        )
    )
    return cell


def step_time_s(cell, folder):
    testbed = VirtualTestbed()
    try:
        return measure(cell.repetition(0), testbed.open_slot(None), folder, folder, None)["step_time_s"]
    finally:
        testbed.close()


@pytest.mark.parametrize("collective", ["direct", "ring", pytest.param("hierarchical", marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", [pytest.param("ssgd = {}", marks=pytest.mark.long), "delayed = { delay = 2 }"])
def test_the_law_knows_the_window_of_a_host_as_the_simulation_does(tmp_path, collective, kind):
    cell = stock(collective, kind)
    assert cell.law_inputs.windows_bytes is not None
    assert step_time_s(cell, tmp_path) == pytest.approx(cell.predicted_step_time_s, rel=0.1)


@pytest.mark.long  # messages that overlap share the window of their connection each time
@pytest.mark.parametrize("collective", ["direct", "hierarchical"])
def test_many_buckets_together_fill_a_window_that_each_of_them_fits_into(tmp_path, collective):
    """The pieces of 20 buckets of 2 MB, 0.67 MB each between three workers, are four windows of 3 MiB."""
    cell = stock(collective, "ssgd = {}", tensors=20, buckets="4KiB")
    assert cell.law_inputs.windows_bytes is not None
    assert max(nbytes for nbytes, _ in cell.law_inputs.buckets) < 3 << 20
    assert step_time_s(cell, tmp_path) == pytest.approx(cell.predicted_step_time_s, rel=0.1)


def test_a_vector_is_not_sent_whole_where_windows_would_make_that_slower(tmp_path):
    """At 20 Gbit/s, 40 MB are sent faster whole than in pieces, but not where a window is 3 MiB.

    Then a worker sends a third of them to each peer, twice, a window in each round trip.
    """
    cell = stock("direct", "ssgd = {}", rate="20Gbit")
    rounds = 2 * 40e6 / 3 / (3 << 20)
    assert step_time_s(cell, tmp_path) == pytest.approx(0.1 * rounds, rel=0.1)


@pytest.mark.parametrize("congestion", ["reno", "cubic", "bbr"])
def test_messages_that_overlap_share_the_window_of_their_connection(tmp_path, congestion):
    """Of two all-reduces on a ring at a time, each worker sends 2 (N-1)/N of 40 MB in a step, a window a round trip."""
    cell = stock("ring", "delayed = { delay = 1 }", congestion)
    assert step_time_s(cell, tmp_path) == pytest.approx(4 / 3 * 40e6 / (3 << 20) * 0.1, rel=0.1)
