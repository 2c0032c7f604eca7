"""The numbers of LIMITATIONS.md and of pages that describe recorded runs follow from the recorded rows."""

from __future__ import annotations

import csv
import json
import re
import statistics
from collections import defaultdict
from pathlib import Path

import pytest

from wanbench.harness.learning.recording import RECORDED, SUFFIX, read
from wanbench.harness.learning.summary import lines, percent
from wanbench.harness.show import papers

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = ROOT / "results" / "reference"
TEXT = " ".join((ROOT / "LIMITATIONS.md").read_text(encoding="utf-8").split())


def rows(run, **where):
    """Valid rows of several workers."""
    lines = (REFERENCE / run / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    found = [row for row in map(json.loads, lines) if row["status"] == "ok" and row["workers"] > 1]
    return [row for row in found if all(row[key] == value for key, value in where.items())]


def by(found, *keys):
    groups = defaultdict(list)
    for row in found:
        groups[tuple(row[key] for key in keys)].append(row)
    return groups


def median(found, column):
    return statistics.median(row[column] for row in found)


def off(one, other):
    """Percent by which one is above the other."""
    return 100 * (one / other - 1)


def parity():
    with (REFERENCE / "parity" / "parity.csv").open(encoding="utf-8") as file:
        every = list(csv.DictReader(file))
    ok = [row for row in every if row["status"] == "ok"]
    simulated = [abs(off(float(row["simulated_s"]), float(row["emulated_s"]))) for row in ok]
    law = [abs(off(float(row["law_s"]), float(row["emulated_s"]))) for row in ok if row["law_s"]]
    near, fair = (sum(one <= limit for one in simulated) for limit in (10, 20))
    most = f"{max(simulated):.0f}"
    yield f"Of {len(ok)} networks and workloads drawn at random, {near} agree within 10 %, and all within {most} %"
    yield f"Of {len(every)} cells that `benchmarks/parity.py` drew"
    yield f"this host emulated {len(ok)} faithfully"
    yield f"{near} are simulated within 10 %, {fair} within 20 %"
    yield f"Of the {len(law)} that the law predicts, {sum(one <= 10 for one in law)} are within 10 %"
    for row in ok:
        if row["law_s"] and abs(apart := off(float(row["law_s"]), float(row["emulated_s"]))) > 10:
            yield f"{row['cell']} ({apart:.0f} %"


def sweep():
    """The emulated sweep against its simulation, which the gate keeps, and against the law."""
    simulated = json.loads((REFERENCE / "gate" / "latency-sweep.json").read_text(encoding="utf-8"))["cells"]
    cells = by(rows("latency-sweep"), "algorithm", "rtt_ms")
    apart, law = [], []
    for (algorithm, rtt_ms), group in cells.items():
        emulated = median(group, "step_time_s")
        apart.append(abs(off(simulated[f"{algorithm} w4 {rtt_ms:g}ms"]["step_time_s"], emulated)))
        law.append(abs(off(median(group, "predicted_step_time_s"), emulated)))
    counts = {len(group) for group in cells.values()}
    yield f"The {len(cells)} cells of `latency-sweep` agree with {repetitions(counts)} within {max(apart):.1f} %"
    yield f"Cells of `latency-sweep` are within {max(law):.1f} % of it"


def repetitions(counts):
    (count,) = counts
    return "one emulated repetition" if count == 1 else f"the median of {count} emulated repetitions"


def world():
    speed = by(rows("dts-world", workload="resnet50-v100"), "algorithm")
    whole = [median(group, "scalability") for group in speed.values() if not group[0]["params"].get("compression")]
    yield f"The published 0.72 of DTS is not reached without compression ({max(whole):.2f} at most)"
    real = by(rows("dts-world-emulated"), "algorithm")
    ssgd = [median(each["ssgd",], "scalability") for each in (speed, real)]
    yield "(simulated {:.4f}, emulated {:.4f})".format(*ssgd)
    apart = [off(median(group, "step_time_s"), median(speed[key], "step_time_s")) for key, group in real.items()]
    yield f"{-min(apart):.0f} % shorter to {max(apart):.0f} % longer than the simulated ones"
    digits = by(rows("dts-world", workload="digits-cnn"), "algorithm")
    mean = {algorithm: statistics.fmean(row["accuracy"] for row in group) for (algorithm,), group in digits.items()}
    lost = [
        100 * (mean["ssgd"] - mean[algorithm])
        for (algorithm,), group in digits.items()
        if median(group, "scalability") >= 0.72
    ]
    (count,) = {len(group) for group in digits.values()}
    steps = {row["steps_total"] for group in digits.values() for row in group}
    yield f"It has {count} repetitions of {min(steps)} to {max(steps)} steps"
    below = f"{min(lost):.1f} to {max(lost):.1f} points"
    yield f"The {len(lost)} settings that reach 0.72 were {below} below ssgd on digits"


def poster():
    published = {
        (one.algorithm, int(one.at)): one.value
        for figure in papers.load("sgp").figures
        if figure.name == "nodes-step-time"
        for one in figure.published
    }
    ring = {workers: median(group, "step_time_s") for (workers,), group in by(rows("sgp-poster"), "workers").items()}
    eight, sixteen = (off(ring[workers], published["ssgd", workers]) for workers in (8, 16))
    yield f"8 nodes at {eight:+.1f} %, 16 at {sixteen:+.1f} %"
    ours = {
        algorithm: median(group, "step_time_s")
        for (algorithm,), group in by(rows("sgp-nodes", workers=32), "algorithm").items()
    }
    theirs = {algorithm: value for (algorithm, workers), value in published.items() if workers == 32}
    yield f"On 32 nodes it gives SGP {theirs['sgp'] / theirs['ssgd']:.2f} of all-reduce SGD's time"
    yield f"Here it is {ours['sgp'] / ours['ssgd']:.2f}, or {ours['osgp'] / ours['ssgd']:.2f} with overlap"
    yield f"D-PSGD is faster here ({ours['dpsgd']:.2f} against {theirs['dpsgd']:.2f} s)"
    yield f"compute alone ({ours['adpsgd']:.2f} against {theirs['adpsgd']:.2f} s)"
    real, simulated = (by(rows(run), "algorithm", "workers") for run in ("sgp-emulated", "sgp-nodes"))
    step = {key: median(group, "step_time_s") for key, group in real.items()}
    apart = [off(time_s, median(simulated[key], "step_time_s")) for key, time_s in step.items()]
    yield f"emulated steps are {-min(apart):.0f} % shorter to {max(apart):.0f} % longer than simulated ones"
    yield f"on 4 nodes SGP takes {step['sgp', 4]:.2f} s emulated, and {published['sgp', 4]} s on the poster"


def learned():
    """The recorded accuracies on MNIST, by condition and setting."""
    return {(line["condition"], line["setting"]): line for line in lines([read(RECORDED / f"mnist{SUFFIX}")])}


def recipe():
    tuned, unchanged = (-100 * learned()[condition, "delayed-d20"]["difference"] for condition in ("base", "unchanged"))
    yield f"On MNIST it costs {tuned:.1f} points with a tuned rate, and some {unchanged:.0f} with SSGD's"


def points(found, condition, setting):
    line = found[condition, setting]
    return percent(line["difference"], line["difference_high"], signed=True)


def test_the_page_on_the_dts_recipe_has_the_numbers_of_its_recording():
    page, found = (ROOT / "docs" / "how-to" / "learn.md").read_text(encoding="utf-8"), learned()
    ssgd = found["base", "ssgd"]
    assert f"`ssgd` reaches {percent(ssgd['accuracy'], ssgd['accuracy_high'])} %" in page
    for setting in {setting for condition, setting in found if condition == "unchanged"} - {"ssgd"}:
        tuned, unchanged = (points(found, condition, setting) for condition in ("base", "unchanged"))
        assert f"| `{setting}` | {tuned} | {unchanged} |" in page
    without = points(found, "momentum-0", "delayed-d20")
    assert f"Without momentum the same delay costs {without.removeprefix('-')} points" in page


def test_the_page_on_scales_has_the_numbers_of_gloo_at_full_size():
    page = " ".join((ROOT / "docs" / "explanation" / "payload-scale.md").read_text(encoding="utf-8").split())
    kept = {
        int(rtt): 100 * median(group, "scalability")
        for (rtt,), group in by(rows("latency-sweep-gloo"), "rtt_ms").items()
    }
    assert (
        f"keeps {kept[50]:.0f} % of its speed at 50 ms, {kept[100]:.0f} % at 100 ms and {kept[200]:.0f} % at 200 ms"
        in page
    )


def test_the_page_on_advice_has_the_regrets_that_were_recorded():
    page = (ROOT / "docs" / "how-to" / "advise.md").read_text(encoding="utf-8")
    table = page[page.index("| cases | choice | median |") :].partition("\n\n")[0]
    recorded = (REFERENCE / "regret" / "regret.md").read_text(encoding="utf-8")
    assert outcomes(table) == outcomes(recorded)


def outcomes(table):
    """The last three columns of each row: two percentages, to two digits, and how many cases have none, and why."""
    cells = [[cell.strip() for cell in line.split("|")[3:6]] for line in table.splitlines()[2:]]
    return [
        (
            [f"{float(text):.2g}" for text in re.findall(r"([\d.]+) ?%", " ".join(row))],
            set(re.findall(r"\d+ (?:missed|not \w+)", row[2])),
        )
        for row in cells
    ]


@pytest.mark.parametrize("sentences", [parity, sweep, world, poster, recipe])
def test_the_text_has_the_numbers_of_the_recorded_rows(sentences):
    assert [sentence for sentence in sentences() if sentence not in TEXT] == []


def test_every_cell_that_is_simulated_further_off_is_named_with_its_difference():
    table = re.findall(r"\| (\d+): [^|]*\| ([+-]\d+) % \|", TEXT)
    with (REFERENCE / "parity" / "parity.csv").open(encoding="utf-8") as file:
        ok = [row for row in csv.DictReader(file) if row["status"] == "ok"]
    apart = {row["cell"]: off(float(row["simulated_s"]), float(row["emulated_s"])) for row in ok}
    assert dict(table) == {cell: f"{percents:+.0f}" for cell, percents in apart.items() if abs(percents) > 10}
