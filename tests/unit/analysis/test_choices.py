"""What a run varies besides the network: how it is named, compared and judged."""

from __future__ import annotations

import pytest
from synthetic_rows import row

from wanbench.harness.analysis.best import effects, networks
from wanbench.harness.analysis.compare import compare
from wanbench.harness.analysis.summary import AnalysisError, cells, frame, pivots, speed_ups
from wanbench.harness.plan.law import PredictInputs
from wanbench.harness.show.best import best_text
from wanbench.harness.show.figures.names import line_name


def cell(axes, seconds, alone=0.1, kind="command:train", label="train", rep=0, **more):
    """A repetition of two workers at RTT 20 ms, whose one-worker cell takes `alone` seconds a step."""
    inputs = PredictInputs(2, 0.0, 0.02, None, 1_000_000)
    name = " ".join(f"{key}={value}" for key, value in axes.items())
    fields = {
        "algorithm": label, "kind": kind, "params": {}, "axes": axes, "workers": 2, "rtt_ms": 20.0, "testbed": "netns",
        "cell": f"{label} {name}", "cell_key": f"{label} {name}", "step_time_s": seconds,
        "scalability": alone / seconds, "collective": axes.get("collective", "gloo"),
    }  # fmt: skip
    return row(inputs, rep, **(fields | more))


def labels(rows):
    return [line["algorithm"] for line in cells(frame(rows))]


def test_a_key_is_named_unless_its_values_have_a_unit_of_their_own():
    assert labels([cell({"bucket": 1}, 1.0), cell({"bucket": 25}, 1.0)]) == ["bucket 1", "bucket 25"]
    assert labels([cell({"bucket": "4MB"}, 1.0), cell({"bucket": "25MB"}, 1.0)]) == ["4MB", "25MB"]
    both = [cell({"up": up, "down": "1MB"}, 1.0) for up in ("1MB", "2MB")] + [cell({"up": "1MB", "down": "2MB"}, 1.0)]
    assert set(labels(both)) == {"down 1MB, up 1MB", "down 1MB, up 2MB", "down 2MB, up 1MB"}
    odd = [cell({"flags": flags}, 1.0) for flags in ("", "a, b", "--fast")]
    assert set(labels(odd)) == {'flags ""', 'flags "a, b"', "flags --fast"}
    assert labels([cell({"lr": 0.1234567}, 1.0), cell({"lr": 0.12345671}, 1.0)]) == ["lr 0.1234567", "lr 0.12345671"]


def test_programs_with_other_values_are_never_taken_for_one():
    apart = [cell({"bucket": 1}, 1.0, workers=2), cell({"bucket": 25}, 1.0, workers=4)]
    (pivot,) = pivots(frame(apart))
    assert pivot.algorithms == ("bucket 1", "bucket 25")
    runs = [cell({"H": 8}, 0.9, run="base"), cell({"H": 64}, 0.2, run="head")]
    with pytest.raises(AnalysisError, match="no cell has a valid repetition at two values of run"):
        compare(runs, "run")


def test_cells_of_an_earlier_spec_stay_marked():
    rows = [cell({"H": 8}, 1.0), cell({"H": 64}, 1.0, label="train-H64 (earlier)")]
    assert labels(rows) == ["train, H 8", "train (earlier), H 64"]
    brackets = [cell({"note": note}, 1.0, label=f"train-note{note}") for note in ("a (b)", "c (d)")]
    assert labels(brackets) == ["note a (b)", "note c (d)"]


def test_values_with_one_worker_cells_of_their_own_are_compared_by_their_steps():
    """One thread keeps 89 % of the speed of one thread, and is still slower than eight."""
    rows = [cell({"threads": 1}, 0.9, 0.8), cell({"threads": 8}, 0.2, 0.1)]
    (network,) = networks(rows)
    assert network.best.algorithm == "threads 8"
    assert best_text(rows, 200).startswith("threads 8 is fastest at RTT 20 ms (emulated).")


def test_overlapping_repetitions_are_equally_fast_and_no_clear_difference():
    rows = [
        cell({"mode": mode}, seconds, scalability=None, rep=rep)
        for mode, times in ((1, (0.100, 0.120, 0.140)), (2, (0.101, 0.122, 0.139)))
        for rep, seconds in enumerate(times)
    ]
    (network,) = networks(rows)
    assert [s.algorithm for s in network.as_fast] == ["mode 1", "mode 2"]
    ((effect),) = effects([network])
    assert effect.ratios["2"][-1] is False


def test_a_pair_of_values_is_compared_where_both_were_measured():
    rows = [
        cell({"collective": collective}, seconds, kind=kind, label=kind, cell=f"{kind} {collective}")
        for kind, collective, seconds in (
            ("ssgd", "gloo", 2.0), ("ssgd", "direct", 1.0), ("dts", "direct", 0.5), ("dts", "ring", 0.4),
        )
    ]  # fmt: skip
    (effect,) = effects(networks(rows))
    assert (effect.best, effect.cells) == ("ring", 2)
    assert effect.ratios == {"direct": (pytest.approx(1.25), pytest.approx(1.25), pytest.approx(1.25), 1, True)}


def test_speed_ups_are_over_the_slowest_valid_setting_of_each_column():
    rows = [
        cell({"m": name}, seconds, rtt_ms=rtt_ms, status=status, cell=f"{name} {rtt_ms}")
        for name, rtt_ms, seconds, status in (
            ("a", 20.0, 0.9, "ok"), ("a", 100.0, 1.0, "failed"), ("b", 20.0, 0.1, "ok"), ("b", 100.0, 0.2, "ok"),
            ("c", 20.0, 0.3, "ok"), ("c", 100.0, 0.1, "ok"),
        )
    ]  # fmt: skip
    (pivot,) = pivots(frame(rows))
    ratios = {key: round(value, 3) for key, value in speed_ups(pivot).items()}
    assert ratios == {
        ("m a", 20.0): 1.0, ("m b", 20.0): 9.0, ("m c", 20.0): 3.0, ("m b", 100.0): 1.0, ("m c", 100.0): 2.0,
    }  # fmt: skip


def trained(kind, accuracy, **axes):
    axes = {f"train.{key}": value for key, value in axes.items()}
    return cell(axes, 0.2, kind=kind, label=kind, accuracy=accuracy, seed=1, steps_total=60, workload="digits-cnn")


def test_accuracy_is_compared_with_the_ssgd_that_trained_alike_or_with_none():
    rows = [trained("ssgd", 0.90, lr=0.1), trained("ssgd", 0.70, lr=0.2), trained("delayed", 0.71, lr=0.2)]
    (network,) = networks(rows)
    change = {s.algorithm: s.change for s in network.standings}
    assert change["delayed"] == pytest.approx(0.01)
    (network,) = networks([row for row in rows if row["algorithm"] != "ssgd" or row["accuracy"] == 0.90])
    (delayed,) = [s for s in network.standings if s.kind == "delayed"]
    assert (delayed.change, delayed.not_compared) == (
        None,
        "not compared: no ssgd was trained with the same settings",
    )


def test_a_choice_that_costs_accuracy_is_not_the_fastest_because_ssgd_pays_it_too():
    rows = [trained("ssgd", 0.90, batch_size=64), {**trained("ssgd", 0.30, batch_size=1), "step_time_s": 0.1}]
    (network,) = networks(rows)
    assert [s.algorithm for s in network.standings if not s.accurate] == ["batch_size 1"]
    assert network.best.algorithm == "batch_size 64"


def test_a_key_of_the_network_is_no_choice_but_another_network():
    rows = [
        cell({"network.buffer": size}, seconds, kind="ssgd", label="ssgd")
        for size, seconds in (("1MB", 0.2), ("2MB", 0.1))
    ]
    assert [network.where for network in networks(rows)] == [{"network.buffer": "1MB"}, {"network.buffer": "2MB"}]
    assert effects(networks(rows)) == []


def test_names_in_figures_have_the_choices():
    params = {"delay": 4, "compression": {"kind": "topk", "ratio": 0.01}}
    rows = [cell({"collective": name}, 1.0, kind="dts", label="dts-d4-topk-r0.01", params=params, cell=name)
            for name in ("gloo", "direct")]  # fmt: skip
    assert [line_name(line) for line in cells(frame(rows))] == ["direct", "gloo"]
    assert [line_name(line) for line in cells(frame(rows[:1]))] == ["DTS d4, top-k 1 %"]
