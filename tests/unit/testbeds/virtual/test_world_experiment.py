"""dts-world on the simulated clock, compared with an analytic model of its ring: latency 0.479 s and 42.3 Mbit/s."""

from __future__ import annotations

import pytest
from on_relay import expand

from wanbench.harness.spec.experiment import Spec
from wanbench.harness.testbeds.virtual.simulate import simulate
from wanbench.harness.testbeds.virtual.tcp import Tcp

WORKERS, STEP_S, GRADIENT_BYTES, RATE_BYTES_PER_S, LATENCY_S = 16, 0.3, 4 * 25_557_032, 42.3e6 / 8, 0.479


@pytest.fixture(scope="module")
def cells():
    """The cells of ResNet-50, by label."""
    found = expand(Spec.load("dts-world").override({"train.until": "1 steps"}), "dts-world")
    return {cell.label: cell for cell in found if cell.task.name == "resnet50-v100"}


def scalability(cell):
    """The scalability on the simulated clock."""
    outcome = simulate(cell.repetition(0).jobs, cell.emulated_network, Tcp(slow_start_after_idle=False)).outcomes[0]
    return STEP_S * cell.window / ((outcome.window_end_ns - outcome.window_begin_ns) / 1e9)


def modelled(delay, period, link_bytes, latency_s=LATENCY_S):
    """The model: a link carries `link_bytes` per `period` steps, and the messages in flight share the missing time."""
    wire_s = link_bytes / RATE_BYTES_PER_S
    missing_s = max(0.0, wire_s + latency_s - delay * STEP_S) / (delay // period + 1)
    return period * STEP_S / max(wire_s, period * STEP_S + missing_s)


def ring(kept=1.0):
    """The bytes that a link of a ring carries if values are summed along the ring."""
    return 2 * (WORKERS - 1) / WORKERS * GRADIENT_BYTES * kept


def gathered(kept):
    """The bytes that a link of a ring carries if all workers' values and indices pass it."""
    return (WORKERS - 1) * GRADIENT_BYTES * kept * 2


@pytest.mark.parametrize(
    ("label", "expected", "table"),
    [
        ("dts-d4-p4", modelled(4, 4, ring()), 0.033),
        ("dts-d20-p20", modelled(20, 20, ring()), 0.163),
        ("chunks-d4-p1-chunkwise", modelled(4, 1, ring(0.01)), 0.828),
        ("chunks-d4-p1-chunkwise-r0.1", modelled(4, 1, ring(0.1)), 0.083),
        ("chunks-d20-p4-chunkwise-r0.1", modelled(20, 4, ring(0.1)), 0.331),
        ("chunks-d20-p20-chunkwise-r0.1", modelled(20, 20, ring(0.1)), 1.0),
        ("topk-d20-p4-topk", modelled(20, 4, gathered(0.01)), 0.207),
        ("topk-d20-p20-topk", modelled(20, 20, gathered(0.01)), 0.956),
        ("topk-d4-p4-topk-r0.001", modelled(4, 4, gathered(0.001)), 1.0),
    ],
)
def test_delay_period_and_compression_scale_as_in_the_ring_model(cells, label, expected, table):
    assert expected == pytest.approx(table, rel=0.05)  # derived by hand, with rounded last digits
    assert scalability(cells[label]) == pytest.approx(expected, rel=0.08)  # headers of packets take 3.6 %


def test_ssgd_has_the_scalability_0_008_to_which_the_network_is_fitted(cells):
    fitted = STEP_S / (STEP_S + 2 * LATENCY_S + ring() / RATE_BYTES_PER_S)
    assert fitted == pytest.approx(0.008, rel=0.01)
    assert scalability(cells["ssgd"]) == pytest.approx(fitted, rel=0.08)


def test_digits_have_the_same_ratio_of_bytes_to_rate_as_resnet50():
    cells = expand(Spec.load("dts-world"), "dts-world")
    for label in ("ssgd", "dts-d20-p4", "chunks-d20-p4-chunkwise"):
        mine = {cell.task.name: cell.law_inputs for cell in cells if cell.label == label}
        seconds = {name: inputs.message_bytes / inputs.rate_bytes_per_s for name, inputs in mine.items()}
        assert seconds["digits-cnn"] == pytest.approx(seconds["resnet50-v100"], rel=0.005)
