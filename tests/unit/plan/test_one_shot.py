"""How `direct` sends a message: in chunks that overlap, or one-shot, whole to every worker, where the law says so."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from on_relay import expand

from wanbench.harness.plan.law import PredictInputs, one_shot_bytes, predict, sent_bytes
from wanbench.harness.spec.experiment import Spec

BASE = PredictInputs(
    workers=4, step_time_s=0.3, rtt_s=0.1, rate_bytes_per_s=12.5e6, message_bytes=1_022_281, chunked=True
)


@pytest.mark.parametrize("nbytes", [100_000, 1_000_000, 10_000_000])
def test_chunks_overlap_the_two_halves_of_direct(nbytes):
    """The first mean can leave when the first chunk has arrived, half a round trip after the beginning."""
    prediction = predict(replace(BASE, message_bytes=nbytes))
    wire_s = 1.5 * nbytes / 12.5e6
    assert prediction.all_reduce_s == pytest.approx(max(wire_s + 0.05, wire_s / 2 + 0.1))


def test_a_small_message_goes_one_shot_up_to_where_both_ways_take_as_long():
    limit = one_shot_bytes(replace(BASE, message_bytes=1000))
    assert limit == int(0.05 * 12.5e6 * 4 / 9)
    whole = predict(replace(BASE, message_bytes=limit, one_shot_bytes=limit)).all_reduce_s
    pieces = predict(replace(BASE, message_bytes=limit)).all_reduce_s
    assert whole == pytest.approx(pieces, rel=1e-4)


def test_two_workers_always_go_one_shot_because_they_send_as_much():
    two = replace(BASE, workers=2)
    whole = predict(replace(two, one_shot_bytes=one_shot_bytes(two)))
    assert whole.wire_s == predict(two).wire_s
    assert whole.all_reduce_s == pytest.approx(predict(two).wire_s + 0.05)


@pytest.mark.parametrize("change", [{"collective": "gloo"}, {"workers": 1}, {"rtt_s": 0.0}, {"delay": 20}])
def test_no_message_goes_one_shot_where_that_gains_nothing(change):
    assert one_shot_bytes(replace(BASE, **change)) == 0


@given(
    workers=st.integers(2, 16),
    rtt_s=st.floats(0.001, 1.0),
    rate=st.floats(1e5, 1e9),
    nbytes=st.integers(1, 10**9),
    delay=st.integers(0, 8),
    step_s=st.floats(0.001, 1.0),
)
def test_one_shot_never_makes_a_step_longer(workers, rtt_s, rate, nbytes, delay, step_s):
    inputs = PredictInputs(workers, step_s, rtt_s, rate, nbytes, delay=delay, chunked=True)
    chosen = replace(inputs, one_shot_bytes=one_shot_bytes(inputs))
    assert predict(chosen).step_time_s <= predict(inputs).step_time_s


def test_one_shot_sends_a_vector_to_each_other_worker_and_pieces_two_nths_of_that():
    assert sent_bytes(replace(BASE, one_shot_bytes=1000), 1000) == 3000
    assert sent_bytes(replace(BASE, one_shot_bytes=999), 1000) == 1500


def test_the_predicted_load_counts_the_bytes_that_one_shot_sends():
    def busy(rtt: str) -> float:
        spec = Spec.load("latency-sweep").override({"sweep.rtt": [rtt], "algorithms": {"sparse": {"period": 4}}})
        cell = expand(spec, "latency-sweep")[-1]
        return (cell.load.cpus - 0.01 * cell.workers) * predict(cell.law_inputs).step_time_s

    assert busy("1000ms") == pytest.approx(2 * busy("100ms"), rel=0.01)  # at 100 ms 1 MB goes in pieces
