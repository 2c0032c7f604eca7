"""Rows of base and head, measured alternately: the verdict on every cell."""

from __future__ import annotations

import numpy as np
import pytest
from gate_rows import row

from wanbench.harness.gate import rule
from wanbench.harness.gate.measured import Sides, findings, further, other_machine
from wanbench.harness.gate.noise import ALL_CELLS, HostNoise
from wanbench.harness.gate.verdict import Judgement, Verdict
from wanbench.harness.spec.tables import GateTable

LIMITS = GateTable()
UNKNOWN = HostNoise({})


def side(algorithm="ssgd", factor=1.0, rounds=5, seed=0, testbed="netns", **fields):
    """Return repetitions of a cell that vary by 0.5 %."""
    times = 0.5 * factor * np.exp(np.random.default_rng(seed).normal(0, 0.005, rounds))
    return [row(algorithm, rep, testbed=testbed, step_time_s=float(time), **fields) for rep, time in enumerate(times)]


def judged(base, head, noise=UNKNOWN, other=None):
    found, together = findings(Sides(base, head, GateTable(), other), LIMITS, 2, noise)
    return {finding.cell.split()[0]: finding for finding in found}, together


def verdict(base, head, **more) -> tuple[Verdict, str]:
    found = judged(base, head, **more)[0]["ssgd"]
    return found.verdict, found.text


def test_every_cell_gets_its_verdict_and_its_numbers():
    base = [*side("slower", seed=1), *side("faster", seed=2), *side("same", seed=3)]
    head = [*side("slower", 1.15, seed=4), *side("faster", 0.8, seed=5), *side("same", seed=6)]
    found, together = judged(base, head)
    assert {cell: finding.verdict for cell, finding in found.items()} == {
        "slower": Verdict.REGRESSED,
        "faster": Verdict.IMPROVED,
        "same": Verdict.UNCHANGED,
    }
    timing = found["slower"].timing
    assert timing.change == pytest.approx(0.15, abs=0.02)
    assert timing.low < timing.change < timing.high
    assert (timing.pairs, timing.margin, timing.noise) == (5, 0.05, None)
    assert timing.base_s == pytest.approx(0.5, rel=0.02)
    assert timing.head_s == pytest.approx(0.575, rel=0.02)
    assert together.verdict is Verdict.UNCHANGED


def test_a_small_slowdown_of_all_cells_is_found_jointly():
    names = [f"a{i}" for i in range(20)]
    base = [r for i, name in enumerate(names) for r in side(name, seed=i)]
    head = [r for i, name in enumerate(names) for r in side(name, 1.02, seed=100 + i)]
    found, together = judged(base, head)
    assert {finding.verdict for finding in found.values()} == {Verdict.UNCHANGED}
    assert together.verdict is Verdict.REGRESSED
    assert together.cell == "all cells"
    assert together.text.endswith("% slower; the limit is 1.0 %")


def test_the_margin_grows_with_the_measured_noise():
    base, head = side(), side(factor=1.15, seed=1)
    noise = HostNoise({"ssgd w4 100ms": 0.1, ALL_CELLS: 0.1})
    found, together = judged(base, head, noise)
    assert found["ssgd"].timing.margin == pytest.approx(0.2)
    assert found["ssgd"].timing.noise == 0.1
    assert found["ssgd"].verdict is Verdict.UNCHANGED
    assert together.verdict is Verdict.UNCHANGED


def test_cells_undecided_after_the_first_look_get_more_rounds():
    rng = np.random.default_rng(3)
    base = [*side("sure"), *[row("unsure", r, testbed="netns", step_time_s=0.5) for r in range(5)]]
    wild = [row("unsure", r, testbed="netns", step_time_s=0.5 * float(np.exp(x))) for r, x in
            enumerate(rng.normal(0.01, 0.2, 5))]  # fmt: skip
    sides = Sides(base, [*side("sure", seed=1), *wild], GateTable())
    noise = HostNoise({ALL_CELLS: 0.5})  # so the joint test of all cells is no reason to measure further
    assert further(sides, LIMITS, 2, noise) == ["unsure w4 100ms"]
    assert judged(base, [*side("sure", seed=1), *wild], noise)[0]["unsure"].verdict is Verdict.INCONCLUSIVE


def test_a_cell_that_regressed_at_the_first_look_stays_regressed():
    sides = Sides(side(), side(seed=1), GateTable())
    found, _ = findings(sides, LIMITS, 2, UNKNOWN, ["ssgd w4 100ms"])
    assert found[0].verdict is Verdict.REGRESSED


def test_message_counts_are_exact_even_if_times_vary():
    base, head = side(), side(seed=1)
    for one in head:
        one["messages_sent"] = 40
    assert verdict(base, head) == (Verdict.REGRESSED, "messages_sent 20 -> 40 (+100 %)")


def test_correctness_is_judged_before_time():
    faster = side(factor=0.5, seed=1, final_loss=0.9)
    assert verdict(side(final_loss=0.5), faster) == (
        Verdict.FAILED,
        "final_loss 0.5 -> 0.9 (+80 %), outside ±10 %",
    )


def test_an_invalid_repetition_of_head_fails_its_cell():
    head = [*side(rounds=4, seed=1), row(rep=4, testbed="netns", status="invalid", reason="packets were late")]
    assert verdict(side(), head) == (Verdict.FAILED, "head, rep 4: invalid: packets were late")


def test_a_cell_that_base_cannot_run_is_not_comparable():
    base = [row(rep=0, testbed="netns", status="failed", reason="it broke")]
    assert verdict(base, side()) == (Verdict.NOT_COMPARABLE, "base, rep 0: failed: it broke")


def test_another_network_is_not_comparable():
    assert verdict(side(), side(rtt_ms=200.0)) == (Verdict.NOT_COMPARABLE, "rtt_ms 100.0 -> 200.0")
    assert verdict(side(), side(loss_burst=5.0)) == (Verdict.NOT_COMPARABLE, "loss_burst None -> 5.0")


def test_another_machine_is_not_comparable_unless_the_clock_is_simulated():
    facts = {"cpu": "A", "kernel": "6.1.0", "versions": {"torch": "2.13.0+cpu"}}
    assert other_machine(facts, facts | {"kernel": "6.9.1", "versions": {"torch": "2.13.1"}}) is None
    other = other_machine(facts, facts | {"cpu": "B", "versions": {"torch": "2.14.0"}})
    assert other == "processor A -> B, torch 2.13 -> 2.14"
    assert verdict(side(), side(), other=other) == (Verdict.NOT_COMPARABLE, other)
    simulated = [row()]
    assert verdict(simulated, simulated, other=other) == (Verdict.UNCHANGED, "")


def test_simulated_cells_are_judged_exactly():
    assert verdict([row()], [row(step_time_s=0.5000001)]) == (
        Verdict.REGRESSED,
        "step_time_s 0.5 -> 0.5000001 (by less than 0.001 %)",
    )


def test_cells_of_only_one_side_are_reported():
    found, _ = judged([*side("ssgd"), *side("gone")], [*side("ssgd", seed=1), *side("new")])
    assert found["gone"] == Judgement("gone w4 100ms", Verdict.NOT_COMPARABLE, "only in the base")
    assert found["new"] == Judgement("new w4 100ms", Verdict.NEW, "only in the head")


def test_repetitions_are_paired_by_number():
    """A host that doubles its speed after two rounds changes nothing."""
    base, head = side(), side(seed=1)
    for one in (*base[2:], *head[2:]):
        one["step_time_s"] /= 2
    assert verdict(base, head[:1] + head[2:])[0] is Verdict.UNCHANGED
    sides = Sides(base, head[:1] + head[2:], GateTable())
    assert np.isnan(sides.log_ratios).tolist() == [[False, True, False, False, False]]
    _, together = findings(sides, GateTable(), 1, UNKNOWN)
    assert together.timing.pairs == 4


def test_the_number_of_a_repetition_costs_no_memory():
    assert verdict([*side(), row(rep=10**12, testbed="netns")], [*side(), row(rep=10**12, testbed="netns")])[0] is (
        Verdict.UNCHANGED
    )


@pytest.mark.parametrize(
    ("factor", "size", "expected"),
    [
        (1.0, 0.1, Verdict.UNCHANGED),
        (1.0, 0.11, Verdict.INCONCLUSIVE),
        (1.6, 0.5, Verdict.INCONCLUSIVE),
        (0.4, 0.2, Verdict.INCONCLUSIVE),
        (2.5, 0.5, Verdict.REGRESSED),
    ],
)
def test_beyond_the_limit_of_the_noise_only_a_regression_is_decided(factor, size, expected):
    noise = HostNoise({"ssgd w4 100ms": size})
    found = verdict(side(), side(factor=factor, seed=1), noise=noise)
    assert found[0] is expected
    if expected is Verdict.INCONCLUSIVE:
        assert found[1] == (
            f"equal sides differed by {100 * size:.1f} % here; the limit is 10 %; measure the noise again with --aa "
            "on a quieter host"
        )


def test_a_user_who_accepts_more_than_the_limit_needs_no_quieter_host():
    noise = HostNoise({"ssgd w4 100ms": 0.2})
    found, _ = findings(Sides(side(), side(seed=1), LIMITS), GateTable(max_slowdown=0.5), 2, noise)
    assert [finding.verdict for finding in found] == [Verdict.UNCHANGED]


def test_all_cells_together_are_not_decided_beyond_the_limit_of_their_noise():
    _, together = judged(side(), side(seed=1), noise=HostNoise({ALL_CELLS: 0.3}))
    assert (together.verdict, together.text.partition(";")[0]) == (
        Verdict.INCONCLUSIVE,
        "equal sides differed by 30.0 % here",
    )


def test_a_cell_that_no_round_measured_has_no_noise():
    assert np.isnan(rule.noise(np.full((1, 5), np.nan))).all()
