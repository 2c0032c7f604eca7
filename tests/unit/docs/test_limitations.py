"""The numbers of the texts on limits and of pages that describe recorded runs follow from the recorded rows.

LIMITATIONS.md leads to the limits of every topic.
"""

from __future__ import annotations

import csv
import re
import statistics

import pytest
from recorded_numbers import (
    LIMITATIONS,
    REFERENCE,
    ROOT,
    SUBJECTS,
    by,
    checks,
    failed,
    learned,
    limits,
    median,
    off,
    points,
    rows,
)

from wanbench.harness.learning.summary import percent

TEXT = " ".join(" ".join(limits().values()).split())


def test_limitations_can_be_read_in_a_quarter_of_an_hour_and_its_table_has_every_page_with_limits():
    text, pages = limits()[LIMITATIONS], set(limits()) - {LIMITATIONS}
    assert len(text.split()) <= 3000
    table = text.partition("\n## Where the limits of a topic are\n")[2]
    assert set(re.findall(r"\| \[[^]]+\]\((\S+)#limits\) \|", table)) == pages
    assert set(re.findall(r"\]\((\S+)#limits\)", text)) == pages


def test_the_limits_of_a_page_are_its_last_section():
    assert [path for path, text in limits().items() if path != LIMITATIONS and re.search(r"^## ", text, re.M)] == []


def test_no_limit_is_stated_twice():
    sentences = [
        sentence
        for text in limits().values()
        for sentence in re.split(r"(?<=[.:]) (?=[A-Z`*])", " ".join(re.sub(r"^[*|] ", "", text, flags=re.M).split()))
        if len(sentence.split()) > 6 and "are on another page" not in sentence
    ]
    assert [sentence for sentence in set(sentences) if sentences.count(sentence) > 1] == []


def test_the_page_on_the_dts_recipe_has_the_numbers_of_its_recording():
    page, found = (ROOT / "docs" / "how-to" / "learn.md").read_text(encoding="utf-8"), learned()
    ssgd = found["base", "ssgd"]
    assert f"`ssgd` reaches {percent(ssgd['accuracy'], ssgd['accuracy_high'])} %" in page
    for setting in {setting for condition, setting in found if condition == "unchanged"} - {"ssgd"}:
        tuned, unchanged = (points(found, condition, setting) for condition in ("base", "unchanged"))
        assert f"| `{setting}` | {tuned} | {unchanged} |" in page
    without = points(found, "momentum-0", "delayed-d20")
    assert f"Without momentum the same delay costs {without.removeprefix('-')} points" in page


def test_the_page_on_ci_has_the_recorded_power_of_the_gate():
    page = (ROOT / "docs" / "how-to" / "ci.md").read_text(encoding="utf-8")
    for (share,), outcomes in checks().items():
        of_cells = [
            f"{sum(one[rule] == verdict for one in outcomes)}"
            for rule, verdict in [("cell", "regressed"), ("cell", "inconclusive"), ("all_cells", "regressed")]
        ]
        assert f"| {share} % | {len(outcomes)} | {' | '.join(of_cells)} | {failed(outcomes)} |" in page


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


def test_the_recorded_table_of_regrets_has_every_case_of_the_rows():
    with (REFERENCE / "regret" / "regret.csv").open(encoding="utf-8") as file:
        rows_of = by(list(csv.DictReader(file)), "task")
    table = (REFERENCE / "regret" / "regret.md").read_text(encoding="utf-8").splitlines()[2:]
    recorded = [line.split(" | ") for line in table if "the advice" in line]
    expected = []
    for group in rows_of.values():
        reached = [100 * float(row["advice"]) for row in group if row["advice"] != "missed"]
        expected.append((str(len(group)), f"{statistics.median(reached):.1f}%"))
    assert sorted((cells[0].strip("| ").partition(":")[0], cells[2]) for cells in recorded) == sorted(expected)


@pytest.mark.parametrize("sentences", SUBJECTS)
def test_the_text_has_the_numbers_of_the_recorded_rows(sentences):
    assert [sentence for sentence in sentences() if sentence not in TEXT] == []


@pytest.mark.parametrize(
    ("grid", "before"),
    [("parity", ""), ("hosts", "hosts "), ("parity-2", "parity, second seed, "), ("hosts-2", "hosts, second seed, ")],
)
def test_every_cell_that_is_simulated_further_off_is_named_with_its_difference(grid, before):
    table = re.findall(rf"\| {before}(\d+): [^|]*\| ([+-]\d+) % \|", TEXT)
    with (REFERENCE / "parity" / f"{grid}.csv").open(encoding="utf-8") as file:
        ok = [row for row in csv.DictReader(file) if row["status"] == "ok"]
    apart = {row["cell"]: off(float(row["simulated_s"]), float(row["emulated_s"])) for row in ok}
    assert dict(table) == {cell: f"{percents:+.0f}" for cell, percents in apart.items() if abs(percents) > 10}
