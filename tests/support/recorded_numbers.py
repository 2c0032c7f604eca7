"""The texts on limits, and their sentences whose numbers follow from recorded rows: a function for each subject."""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
import statistics
from collections import defaultdict
from pathlib import Path

from git_command import git

from wanbench.harness.analysis.equivalence import differences, verdicts
from wanbench.harness.learning.recording import RECORDED, SUFFIX, read
from wanbench.harness.learning.summary import difference, lines, percent
from wanbench.harness.show import papers

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "results" / "reference"
LIMITATIONS = "LIMITATIONS.md"


def limits():
    """LIMITATIONS.md and the last section of each page of the documentation if it is called Limits, by path."""
    found = {LIMITATIONS: (ROOT / LIMITATIONS).read_text(encoding="utf-8")}
    for path in sorted((ROOT / "docs").rglob("*.md")):
        section = re.search(r"^## Limits\n(.*)", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        if section:
            found[str(path.relative_to(ROOT))] = section[1]
    return found


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
    yield f"Rules of the model were chosen while looking at the {len(ok)}"
    yield f"Of {len(every)} cells that `benchmarks/parity.py` drew"
    yield f"this host emulated {len(ok)} faithfully"
    yield f"{near} are simulated within 10 %, {fair} within 20 %"
    yield f"Of the {len(law)} that the law predicts, {sum(one <= 10 for one in law)} are within 10 %"
    for row in ok:
        if row["law_s"] and abs(apart := off(float(row["law_s"]), float(row["emulated_s"]))) > 10:
            yield f"{row['cell']} ({apart:.0f} %"
    for row in ok:
        if abs(apart := off(float(row["simulated_s"]), float(row["emulated_s"]))) > 10:
            yield f"| {row['cell']}: "
            yield f"| {apart:+.0f} % |"
            yield f"{re.search(r'N=(.+?) ', row['what'])[1]} workers"
            sent = re.search(r"([.0-9]+)MB .*loss ([.0-9]+)%", row["what"])
            if sent:
                yield f"{float(sent[1]):.0f} MB, {sent[2]} % loss"


def unseen():
    """Cells of another seed of both grids: that nobody had seen, emulated after the model was last changed."""
    every = []
    for grid in ("parity-2", "hosts-2"):
        with (REFERENCE / "parity" / f"{grid}.csv").open(encoding="utf-8") as file:
            every += [row | {"grid": grid.partition("-")[0]} for row in csv.DictReader(file)]
    ok = [row for row in every if row["status"] == "ok"]
    apart = [off(float(row["simulated_s"]), float(row["emulated_s"])) for row in ok]
    law = [abs(off(float(row["law_s"]), float(row["emulated_s"]))) for row in ok if row["law_s"]]
    near, within = sum(abs(one) <= 10 for one in apart), sum(one <= 10 for one in law)
    most = math.ceil(max(map(abs, apart)))
    yield f"Of {len(ok)} that nobody had seen, emulated after the last change, {near} agree within 10 %"
    yield f"{near} agree within 10 %, and all within {most} %"
    yield f"Both grids were drawn again with `--seed 2`, {len(every) // 2} cells of each"
    yield f"Of {len(every)} cells of the second seed this host emulated {len(ok)} faithfully"
    yield f"{near} of these are simulated within 10 %, and of the {len(law)} that the law predicts, {within}"
    for row, one in zip(ok, apart, strict=True):
        if abs(one) > 10:
            yield f"| {row['grid']}, second seed, {row['cell']}: "
            yield f"| {one:+.0f} % |"
            yield f"{re.search(r'N=(.+?) ', row['what'])[1]} workers"


def sweep():
    """The emulated sweep against its simulation, which the gate keeps, and against the law."""
    simulated = json.loads((REFERENCE / "gate" / "latency-sweep.json").read_text(encoding="utf-8"))["cells"]
    cells = by(rows("latency-sweep"), "algorithm", "rtt_ms")
    apart, law = [], []
    for (algorithm, rtt_ms), group in cells.items():
        emulated = median(group, "step_time_s")
        apart.append(abs(off(simulated[f"{algorithm} w4 {rtt_ms:g}ms"]["step_time_s"], emulated)))
        law.append(abs(off(emulated, median(group, "predicted_step_time_s"))))
    counts = {len(group) for group in cells.values()}
    yield f"The {len(cells)} cells of `latency-sweep` agree with {repetitions(counts)} within {max(apart):.1f} %"
    yield f"Cells of `latency-sweep` are within {max(law):.1f} % of the law"
    yield f"emulated cells take longer, by up to {', '.join(above_the_law(10)[:-1])} and {above_the_law(10)[-1]}"
    shorter = [
        -off(simulated[f"{algorithm} w4 {rtt_ms:g}ms"]["step_time_s"], median(group, "step_time_s"))
        for (algorithm, rtt_ms), group in cells.items()
    ]
    yield f"Simulated steps of `latency-sweep` are {statistics.median(shorter):.1f} % shorter in the median"


def stock():
    """The sweep on stock hosts, emulated, against its simulation with messages of full size."""
    simulated = by(rows("dts-latency-stock"), "algorithm", "rtt_ms")
    emulated = by(rows("latency-sweep-stock"), "algorithm", "rtt_ms")
    apart = [
        off(median(found, "step_time_s"), median(simulated[key], "step_time_s")) for key, found in emulated.items()
    ]
    low, high = min(apart), max(apart)
    yield f"Emulated steps of `latency-sweep-stock` are {low:.0f} to {high:.0f} % longer than the simulated"
    algorithms, times_ms = zip(*emulated, strict=True)
    ((missing, rtt_ms),) = set(itertools.product(algorithms, times_ms)) - emulated.keys()
    assert missing.startswith("delayed")
    yield f"Delayed updates at {rtt_ms:g} ms are missing"


def above_the_law(percent):
    """By how much the emulated cell that is farthest above the law is, for each run in which it is by so much."""
    most = {}
    for folder, found, _ in recordings():
        for group in by([row for row in found if row["predicted_step_time_s"]], "cell").values():
            own = off(median(group, "step_time_s"), group[0]["predicted_step_time_s"])
            most[folder.name] = max(own, most.get(folder.name, 0.0))
    return [f"{own:.0f} % (`{name}`)" for name, own in sorted(most.items(), key=lambda item: -item[1]) if own > percent]


def repetitions(counts):
    (count,) = counts
    return "one emulated repetition" if count == 1 else f"the median of {count} emulated repetitions"


def world():
    speed = by(rows("dts-world", workload="resnet50-v100"), "algorithm")
    whole = [median(group, "scalability") for group in speed.values() if not group[0]["params"].get("compression")]
    yield f"the published 0.72 of DTS is not reached without compression ({max(whole):.2f} at most)"
    unfitted = rows("dts-world-hosts")
    ssgd = min((row for row in unfitted if row["algorithm"] == "ssgd"), key=lambda row: row["scalability"])
    alike = [row for row in unfitted if row["collective"] == ssgd["collective"]]
    dts, topk = ([r["scalability"] for r in alike if r["algorithm"].startswith(name)] for name in ("dts", "topk"))
    yield f"ssgd has {ssgd['scalability']:.3f} at least"
    yield f"where DTS has {min(dts):.2f}, {max(dts):.2f} with larger buffers"
    yield f"and {min(topk):.2f} with compression (`docs/how-to/papers.md`, simulated)"
    real = by(rows("dts-world-emulated"), "algorithm")
    ssgd = [median(each["ssgd",], "scalability") for each in (speed, real)]
    yield "(simulated {:.4f}, emulated {:.4f})".format(*ssgd)
    apart = [off(median(group, "step_time_s"), median(speed[key], "step_time_s")) for key, group in real.items()]
    yield f"{-min(apart):.0f} % shorter to {max(apart):.0f} % longer than the simulated ones"
    digits = by(rows("dts-world", workload="digits-cnn"), "algorithm")
    mean = {algorithm: statistics.fmean(row["accuracy"] for row in group) for (algorithm,), group in digits.items()}
    fast = [algorithm for (algorithm,), group in digits.items() if median(group, "scalability") >= 0.72]
    trained = {algorithm: group[0]["steps_total"] for (algorithm,), group in digits.items()}
    alike = [algorithm for algorithm in fast if trained[algorithm] == trained["ssgd"]]
    lost = [100 * (mean["ssgd"] - mean[algorithm]) for algorithm in alike]
    (count,) = {len(group) for group in digits.values()}
    steps = {row["steps_total"] for group in digits.values() for row in group}
    yield f"It has {count} repetitions of {min(steps)} to {max(steps)} steps"
    below = f"{min(lost):.1f} to {max(lost):.1f} points"
    yield f"Of the {len(fast)} settings that reach 0.72, {len(fast) - len(alike)} trained for longer than ssgd"
    yield f"The other {len(alike)} were {below} below it on digits (means)"


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
    faster = [-off(time_s, published["ssgd", workers]) for workers, time_s in ring.items()]
    yield f"`ring` is {min(faster):.0f} to {max(faster):.0f} % faster than the poster on all four"
    ours = {
        algorithm: median(group, "step_time_s")
        for (algorithm,), group in by(rows("sgp-nodes", workers=32), "algorithm").items()
    }
    theirs = {algorithm: value for (algorithm, workers), value in published.items() if workers == 32}
    yield f"On 32 nodes the poster gives SGP {theirs['sgp'] / theirs['ssgd']:.2f} of all-reduce SGD's time"
    yield f"Here it is {ours['sgp'] / ours['ssgd']:.2f}, or {ours['osgp'] / ours['ssgd']:.2f} with overlap"
    yield f"D-PSGD is faster here ({ours['dpsgd']:.2f} against {theirs['dpsgd']:.2f} s)"
    yield f"compute alone ({ours['adpsgd']:.2f} against {theirs['adpsgd']:.2f} s)"
    real, simulated = (by(rows(run), "algorithm", "workers") for run in ("sgp-emulated", "sgp-nodes"))
    yield f"On {' and '.join(map(str, sorted({workers for _, workers in real})))} nodes, emulated"
    step = {key: median(group, "step_time_s") for key, group in real.items()}
    apart = [off(time_s, median(simulated[key], "step_time_s")) for key, time_s in step.items()]
    yield f"emulated steps are {-min(apart):.0f} % shorter to {max(apart):.0f} % longer than simulated ones"
    yield f"on 4 nodes SGP takes {step['sgp', 4]:.2f} s emulated, and {published['sgp', 4]} s on the poster"


def learned():
    """The recorded accuracies on MNIST, by condition and setting."""
    return {(line["condition"], line["setting"]): line for line in lines([read(RECORDED / f"mnist{SUFFIX}")])}


def recipe():
    tuned, unchanged = (points(learned(), condition, "delayed-d20") for condition in ("base", "unchanged"))
    tuned, unchanged = tuned.removeprefix("-"), unchanged.removeprefix("-")
    yield f"A small CNN without batch norm loses {tuned} points at D = 20 with a tuned rate"
    yield f"with a tuned rate, and {unchanged} with SSGD's"
    mnist, servers, signals = (compared(f"dts-recipe{of}") for of in ("", "-servers", "-mnist1d"))
    yield f"D = 20 loses {lost(mnist['delayed-d20'])} points on MNIST"
    yield f"errs {mnist['delayed-d20'].errors:.2f} times as often as SSGD"
    more = servers["delayed-d20"]
    many = "On MNIST at D = 20, 16 workers, whose rate is four times as high"
    yield f"{many}, lose {lost(more)} and err {more.errors:.2f} times as often"
    yield f"On MNIST-1D, with 500 examples, D = 20 loses {lost(signals['delayed-d20'])} points"
    said = verdicts(mnist, "delayed-d20")
    assert [name for name in mnist if "d20" not in name and said[name] != "equivalent"] == ["delayed-d12"]
    yield "D = 4 and periods of 4 and 20 are equivalent to SSGD there"
    delayed, sparse = (cost("gpt-sgd", setting) for setting in ("delayed-d4", "sparse-p20"))
    seeds = read(RECORDED / f"residual{SUFFIX}").by_setting["base", "delayed-d20"].values()
    (steps,) = {seed.steps[-1] for seed in seeds}
    short = cost("residual", "delayed-d20")
    yield f"After {steps} steps in place of 1,500, the network on MNIST loses {short} points at D = 20"
    yield f"A transformer with momentum SGD loses {delayed} points at D = 4, and {sparse} with a period of 20"


def cost(design, setting):
    """The points that a setting with its own learning rate loses, with the interval."""
    recording = read(RECORDED / f"{design}{SUFFIX}")
    own = difference(recording.by_setting["base", setting], recording.reference_of("base"))
    mean, low, high = (-100 * value for value in (own.mean, own.high, own.low))
    return f"{mean:.1f} ({low:.1f} to {high:.1f})"


def compared(run):
    """By method, its difference from ssgd over equal seeds."""
    accuracy = {
        name: {row["seed"]: row["accuracy"] for row in group} for (name,), group in by(rows(run), "algorithm").items()
    }
    return {name: differences(of, accuracy["ssgd"]) for name, of in accuracy.items() if name != "ssgd"}


def lost(method):
    change = method.change
    return f"{-100 * change.mean:.2f} ({-100 * change.high:.2f} to {-100 * change.low:.2f})"


def points(found, condition, setting):
    line = found[condition, setting]
    return percent(line["difference"], line["difference_high"], signed=True)


def advice():
    with (REFERENCE / "regret" / "regret.csv").open(encoding="utf-8") as file:
        every = list(csv.DictReader(file))
    known, held_out = ([row for row in every if (row["task"] == "known") is which] for which in (True, False))
    tasks, networks = {row["task"] for row in held_out}, {row["number"] for row in held_out}
    yield f"With each of {len(tasks)} recorded tasks held out in turn on {len(networks)} random uniform networks"
    found = [regret(row["advice"]) for row in held_out]
    yield f"the advice misses the target in {found.count(math.inf)} of {len(found)} cases"
    least = [min(regret(row[name]) for name in ("ssgd", "law", "always")) for row in held_out]
    ratios = [(1 + own) / (1 + best) for own, best in zip(found, least, strict=True)]
    equal = sum(0.99 <= ratio <= 1.01 for ratio in ratios)
    yield (
        f"Against the best of three baselines it takes less time in {sum(ratio < 0.99 for ratio in ratios)}, as much "
        f"(within 1 %) in {equal}, and more in {sum(ratio > 1.01 for ratio in ratios)}"
    )
    ssgd = sum(row["advised"].startswith("ssgd on ") for row in held_out)
    yield f"it is `ssgd` on its fastest collective in {ssgd}"
    median_pct, most_pct = quantiles([one for one in found if math.isfinite(one)])
    yield f"needs {median_pct:.0f} % more time than the best setting in the median"
    yield f"and {most_pct:.0f} % at the 95th percentile (simulated)"
    always = [row["always"] for row in held_out]
    yield f"The best setting of the other tasks misses the target in {always.count('missed')} of {len(always)}"
    median_pct, most_pct = quantiles([regret(row["advice"]) for row in known])
    yield f"On {len(known)} other networks, with other learning and straggler seeds of a task that is recorded"
    yield f"needs {median_pct:.1f} % more in the median, and {most_pct:.1f} % at the 95th percentile"


def regret(text):
    """A number of the table, infinite for a target that was missed."""
    return math.inf if text == "missed" else float(text)


def quantiles(shares):
    """Median and 95th percentile, in percent."""
    return [
        100 * value for value in (statistics.median(shares), statistics.quantiles(shares, n=20, method="inclusive")[-1])
    ]


def recordings():
    """What is known of each recorded run besides its rows: (run, its valid emulated rows, its manifest)."""
    for path in sorted(REFERENCE.glob("*/rows.jsonl")):
        every = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        emulated = [row for row in every if row["status"] == "ok" and row["testbed"] != "virtual"]
        yield path.parent, emulated, json.loads((path.parent / "manifest.json").read_text(encoding="utf-8"))


def old():
    found = list(recordings())
    emulated = sum(len(rows) for _, rows, _ in found)
    assert all(row["paused_pct"] is not None for _, rows, _ in found for row in rows)
    assert all((folder / "digests.jsonl").exists() for folder, _, _ in found)
    yield f"Pauses were counted in all {emulated} emulated repetitions in `results/reference`, and all have digests"
    assert not [folder for folder, _, manifest in found if str(manifest["git"]).endswith("-dirty")]
    if git(REFERENCE, "rev-parse", "--is-shallow-repository", check=False) == "false":
        history = {commit[:12] for commit in git(REFERENCE, "rev-list", "HEAD").split()}
        assert {manifest["git"] for _, _, manifest in found} <= history
    yield f"All {len(found)} runs were recorded from working trees without changes"
    yield "so the commit that each names repeats it"
    late = sorted((row["lateness_p99_ms"], row["algorithm"], row["rtt_ms"]) for row in rows("latency-sweep"))
    (most, algorithm, rtt_ms), next_ms = late[-1], late[-2][0]
    yield f"(`{algorithm}` at {rtt_ms:g} ms) has packets that were {most:.1f} ms late at the 99th percentile"
    yield f"Those of the other repetitions were at most {next_ms:.1f} ms late"
    count = len(rows("latency-sweep", algorithm=algorithm, rtt_ms=rtt_ms))
    yield f"The step time of its cell is a median of {count}."


def delays():
    errors = [abs(row["one_way_error_ms"]) for _, every, _ in recordings() for row in every if row["one_way_error_ms"]]
    yield f"One-way delays of the idle network were right to {math.ceil(10 * max(errors)) / 10} ms in all recorded runs"


def collectives():
    with (REFERENCE / "collectives" / "collectives.csv").open(encoding="utf-8") as file:
        ok = [row for row in csv.DictReader(file) if row["status"] == "ok" and row["simulated_s"]]
    apart = [off(float(row["simulated_s"]), float(row["emulated_s"])) for row in ok]
    near = [one for one in apart if abs(one) <= 10]
    assert all(one < 0 for one in apart if one not in near)
    yield f"Of the {len(ok)} points of `results/reference/collectives`"
    yield f"that are emulated and simulated, {len(near)} agree within 10 %"
    yield f"agree within 10 %, and the others are simulated up to {-min(apart):.0f} % shorter"


def hosts():
    with (REFERENCE / "parity" / "hosts.csv").open(encoding="utf-8") as file:
        every = list(csv.DictReader(file))
    ok = [row for row in every if row["status"] == "ok"]
    apart = {row["cell"]: off(float(row["simulated_s"]), float(row["emulated_s"])) for row in ok}
    law = [abs(off(float(row["law_s"]), float(row["emulated_s"]))) for row in ok if row["law_s"]]
    near, within = sum(abs(one) <= 10 for one in apart.values()), sum(one <= 10 for one in law)
    most = f"{max(map(abs, apart.values())):.0f}"
    yield f"Of {len(ok)} more, with the buffers of hosts, {near} agree within 10 %, and all within {most} %"
    yield f"and some were changed after the {len(ok)}"
    yield f"Of its {len(every)} cells this host emulated {len(ok)} faithfully, and {near} of these"
    yield f"and {near} of these are simulated within 10 %"
    yield f"of the {len(law)} that the law predicts, {within} (`results/reference/parity/hosts.csv`)"
    *first, last = (row["cell"] for row in every if row["status"] != "ok")
    yield f"Cells {', '.join(first)} and {last},"
    for row in ok:
        if abs(apart[row["cell"]]) > 10:
            yield f"| hosts {row['cell']}: "
            yield f"| {apart[row['cell']]:+.0f} % |"
            yield f"{re.search(r'N=(.+?) ', row['what'])[1]} workers"


def checks():
    """The recorded checks by their planted slowdown in percent, as text."""
    with (REFERENCE / "gate-power" / "checks.csv").open(encoding="utf-8") as file:
        return by(list(csv.DictReader(file)), "slowdown_pct")


def failed(outcomes):
    return sum("regressed" in (one["cell"], one["all_cells"]) for one in outcomes)


SUBJECTS = (parity, hosts, unseen, sweep, stock, world, poster, recipe, advice, old, delays, collectives)
