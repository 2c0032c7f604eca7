"""Compression in a spec: planned, refused, predicted and simulated."""

from __future__ import annotations

import pytest
from small_spec import edited, refusal, swept

from wanbench.harness.plan.law import PredictInputs, predict
from wanbench.harness.testbeds.virtual.simulate import simulate
from wanbench.harness.testbeds.virtual.tcp import Tcp

VIRTUAL = ("[algorithms]", '[run]\ntestbed = "virtual"\n\n[algorithms]')
DIGITS = ("params = 1000\ntensors = 2\n", 'name = "digits-cnn"\n')


def cells_of(algorithm, *changes):
    return swept(edited(VIRTUAL, ("ssgd = {}", algorithm), *changes))


def simulated(cell, shuffle=None):
    return simulate(cell.repetition(0).jobs, cell.emulated_network, Tcp(), shuffle=shuffle)


def test_a_list_of_compressors_expands_into_one_algorithm_each():
    text = 'dts = { delay = 2, period = 1, compression = ["none", { kind = "topk", ratio = [0.1, 0.01] }, "fp16"] }'
    labels = [cell.label for cell in cells_of(text)]
    assert labels == ["dts-d2-p1", "dts-d2-p1-topk-r0.1", "dts-d2-p1-topk", "dts-d2-p1-fp16"]


@pytest.mark.parametrize(
    ("algorithm", "line"),
    [
        ('ssgd = { compression = "topp" }', "compression: compressor 'topp' is unknown; did you mean 'topk'?"),
        (
            'ssgd = { compression = { kind = "topk", ratio = 2 } }',
            "compression: compressor 'topk': ratio = 2; expected a number, above 0 to 1",
        ),
        ("ssgd = { compression = [] }", "compression = []; expected a value or a list with at least one"),
    ],
)
def test_a_wrong_compressor_is_refused_before_anything_starts(algorithm, line):
    assert refusal(("ssgd = {}", algorithm)).startswith(f"x.toml: algorithms.ssgd: algorithm 'ssgd': {line}")


def test_an_impossible_combination_is_refused_before_anything_starts():
    with_it = ("ssgd = {}", 'ssgd = { compression = "powersgd" }')
    assert refusal(with_it) == (
        "x.toml: algorithm=ssgd-powersgd, workers=2, rtt=10ms: algorithm 'ssgd': compression: 'powersgd' needs the "
        "matrices of a model; a workload by numbers has none, and a payload_scale below 1 cuts them up"
    )
    dts = ("ssgd = {}", "dts = { delay = 1, period = 1 }\n[train]\noptimizer = 'adamw'")
    assert refusal(dts).endswith("not 'adamw'; dts with form = \"model\" works with any")


def test_the_law_covers_only_messages_that_are_averaged_in_one_round():
    text = "dts = { delay = 0, period = 2, compression = ['fp16', 'topk', 'signsgd', 'chunkwise'] }"
    law = {cell.label: cell for cell in cells_of(text)}
    known = {label: cell.predicted_step_time_s for label, cell in law.items()}
    assert {label for label, seconds in known.items() if seconds is not None} == {
        "dts-d0-p2-fp16",
        "dts-d0-p2-chunkwise",
    }
    inputs = law["dts-d0-p2-fp16"].law_inputs
    assert inputs.message_bytes == 2000
    assert known["dts-d0-p2-fp16"] == predict(PredictInputs.from_json(inputs.to_json())).step_time_s


@pytest.mark.parametrize("compression", ["topk", "fp16", "signsgd", "qsgd"])
def test_phantoms_send_the_same_as_real_vectors(compression):
    sent = []
    for table in (DIGITS[1], "params = 38_282\n"):
        algorithm = f"delayed = {{ delay = 2, compression = '{compression}' }}"
        (cell,) = cells_of(algorithm, (DIGITS[0], table), ("10ms", "20ms"))
        outcome = simulated(cell).outcomes[0]
        sent.append((outcome.window.payload_bytes, outcome.window.messages_sent))
    assert sent[0] == sent[1]
    numel = 38_282
    bytes_each = {"topk": 8 * 383, "fp16": 2 * numel, "signsgd": 4 + 4786, "qsgd": 75 * 4 + numel // 2}[compression]
    assert sent[0][0] == bytes_each * sent[0][1]


@pytest.mark.parametrize(
    ("compression", "table", "vectors"),
    [
        *(("topk", table, 3) for table in (DIGITS[1], "params = 38_282\n")),
        *(("fp16", table, 2) for table in (DIGITS[1], "params = 38_282\n")),
        ("powersgd", DIGITS[1], 3),
    ],
)
def test_a_worker_compresses_its_vector_and_restores_one_from_every_message(compression, table, vectors):
    steps = []
    for ns_per_byte in (0, 50):
        algorithm = f"ssgd = {{ compression = {{ kind = '{compression}', ns_per_byte = {ns_per_byte} }} }}"
        (cell,) = cells_of(algorithm, (DIGITS[0], table))
        outcome = simulated(cell).outcomes[0]
        steps.append((outcome.window_end_ns - outcome.window_begin_ns) / cell.window)
    assert steps[1] - steps[0] == pytest.approx(vectors * 38_282 * 4 * 50, rel=1e-3)


def test_a_gossip_worker_restores_its_own_message_too():
    steps = []
    for ns_per_byte in (0, 50):
        algorithm = f"ecdpsgd = {{ compression = {{ kind = 'qsgd', ns_per_byte = {ns_per_byte} }} }}"
        (cell,) = cells_of(algorithm, (DIGITS[0], "params = 38_282\n"))
        outcome = simulated(cell).outcomes[0]
        steps.append((outcome.window_end_ns - outcome.window_begin_ns) / cell.window)
    assert steps[1] - steps[0] == pytest.approx(3 * 38_282 * 4 * 50, rel=1e-3)  # compressed; its own, a neighbour's


def test_the_law_does_not_know_how_long_compression_takes():
    (cell,) = cells_of("ssgd = { compression = { kind = 'fp16', ns_per_byte = 1.5 } }")
    assert (cell.predicted_step_time_s, cell.law_gap) == (None, "compression takes time")


@pytest.mark.parametrize(
    "algorithm",
    [
        "ssgd = { compression = { kind = 'dgc', ratio = 0.05, momentum = 0.9, clip = 2.0, warmup = 10 } }",
        "dts = { delay = 2, period = 2, compression = { kind = 'topk', ratio = 0.05 } }",
        *(
            pytest.param(algorithm, marks=pytest.mark.long)
            for algorithm in (
                "dts = { delay = 3, period = 1, compression = { kind = 'powersgd', rank = 2 } }",
                "sparse = { period = 2, compression = 'terngrad' }",
                "dts = { delay = 2, period = 2, form = 'model', compression = 'signsgd' }",
            )
        ),
    ],
)
def test_it_still_learns_and_the_switching_order_changes_nothing(algorithm):
    (cell,) = cells_of(f"{algorithm}\n[train]\nuntil = '40 steps'\nlr = 0.1", DIGITS)
    plain, shuffled = simulated(cell), simulated(cell, shuffle=3)
    assert plain.outcomes == shuffled.outcomes
    assert plain.outcomes[0].evaluations[-1].accuracy > 0.6
