"""No number of the texts on limits, of the README's prose, of a caption or of a note stands there alone.

Each is part of a sentence that follows from recorded rows (`recorded_numbers`) or from the code (`of_code`), or was
measured by hand and says when and by what program (`BY_HAND`), or is part of a name (`NAMES`). Blocks and spans of
code are not read: other tests run them.
"""

from __future__ import annotations

import csv
import re
from statistics import median

import pytest
from recorded_numbers import REFERENCE, ROOT, SUBJECTS, limits, parity, rows
from wanbench_docs import claims

import scripts
from wanbench import netprofiles
from wanbench.harness.advise import question
from wanbench.harness.emulators import plan as emulators
from wanbench.harness.errors import EXIT_REGRESSION
from wanbench.harness.gate.rule import NOISE_LIMIT
from wanbench.harness.plan import law, ring_order
from wanbench.harness.plan.conditions import _CLOSE
from wanbench.harness.plan.host_tcp import KERNELS
from wanbench.harness.plan.law import GLOO_SEGMENT_BYTES, gloo_rounds
from wanbench.harness.process import priority
from wanbench.harness.rep import fidelity
from wanbench.harness.rep.measure import SINGLE_PACKETS
from wanbench.harness.show import papers
from wanbench.harness.show.report import content
from wanbench.harness.spec import tables, timeline
from wanbench.harness.testbeds.virtual.congestion import SEGMENT_BYTES
from wanbench.harness.testbeds.virtual.sender import MIN_TIMEOUT_NS
from wanbench.workloads import workload_keys
from wanbench.workloads.comm import datagram, meter
from wanbench.workloads.data import digits, stdlib
from wanbench.workloads.models.builtins import BUILTINS
from wanbench.workloads.process import heartbeat

NUMBER = re.compile(r"(?<![\w.])(?<![A-Za-z]-)[+-]?\d[\d.,]*(?<![.,])(?!\w)")
SKIPPED = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)|https?://\S+|<!--.*?-->|^\d+\. ", re.DOTALL | re.MULTILINE)
LIMITS = limits()

BY_HAND = {
    "relay` carries 5 to 10 Gbit/s": "benchmarks/relay_fidelity.py",
    "was within 10 % of the simulated one": "benchmarks/kills.py",
    "they are valid and agree within 3 %": "benchmarks/parity.py",
}
NAMES = (
    "T(1)", "rank 0", "Rank 0", "torch 2.13", "torch 2.4", "Linux 6.12", "BBR (version 1)", "DTS Fig. 3", "a scale",
    "At D = 20 and momentum 0.9", "ratio 1 is SGD", "and 75 at 1.", "`payload_scale` below 1 does",
    "`payload_scale` of 1.",
    "which is 0 unless", "in cell 49", "November 2026",
)  # fmt: skip


WARMUP = tables.WorkloadTable.model_fields["warmup"].description.partition("default: ")[2].rstrip(".")


def of_gate():
    path = "tests/unit/gate/test_gate_rule.py"
    gate, source = scripts.load(path), (ROOT / path).read_text(encoding="utf-8")
    assert "log_ratios(random, 2000)" in source
    sigma, drift, margin = (f"{100 * value:.0f}" for value in (gate.SIGMA, gate.DRIFT, gate.MARGIN))
    yield f"(2000 simulated builds of {gate.CELLS} cells, repetitions that vary by {sigma} %"
    yield f"a host that drifts by {drift} %"
    yield f"margin {margin} %;"
    for bound, sentence in (
        ("undecided.mean() < 0.06", "below 6 % of the cells are inconclusive"),
        ("effect[7] = 0.15", "One cell 15 % slower is found in over 90 % of the builds"),
        ("regressed[:, 7].mean() >= 0.90", "is found in over 90 % of the builds"),
        ("effect[0] = 0.20", "20 % in 99 %"),
        ("regressed[:, 0].mean() >= 0.99", "20 % in 99 %"),
        ("np.full(CELLS, 0.02)", "All cells 2 % slower are found together"),
        ("slower.mean() >= 0.95", "found together in over 95 %"),
    ):
        assert bound in source
        yield sentence
    yield f"slower by exactly the margin, {100 * gate.ALPHA:.0f} % of the builds are red"


def of_code():
    network = BUILTINS["resnet50-v100"]
    nbytes = 4 * sum(tensor.numel for tensor in network.tensors())
    scaled, whole = (gloo_rounds(4, round(scale * nbytes)) for scale in (0.01, 1))
    yield f"`resnet50-v100` takes {1e3 * network.step_time_s:.0f} ms per step"
    yield f"gloo needs {scaled} round trips for ResNet-50 on four workers at a scale of 0.01 and {whole} at 1"
    yield f"up to {(emulators._LARGEST_BUFFER_BYTES + 1) >> 30} GiB"
    images = digits.read()
    yield f"small CNN on {len(images.train_y) + len(images.test_y)} images"
    stability = scripts.load("benchmarks/stability.py")
    limit, of_ssgd = stability.delayed_limit(20, 0.9), stability.synchronous_limit(0.9)
    yield f"the limit on learning rate x curvature is {limit:.3g}, against {of_ssgd:g} for SSGD"
    assert {"0.008", "0.72"} <= {claim.theirs for name in claims.names() for claim in claims.load(name).claim}
    yield "the published 0.008 of SSGD"
    yield "the paper's 0.008 on 16 workers"
    yield "The published 0.72 of DTS includes"
    yield re.search(r"about [\d.]+ Gbit/s", SINGLE_PACKETS).group()
    least_ms, most_ms = (ns / 1e6 for ns in emulators._SEGMENT_NS)
    yield f"at most {100 * emulators._SEGMENT_SHARE:g} % of the round trip, within {least_ms:g} and {most_ms:g} ms"
    yield f"Above {ring_order._ALL_ORDERS_OF} sites"
    yield f"Pauses are seen to {1e3 * heartbeat.BEAT_S:g} ms, and those below {heartbeat.LEAST_NS / 1e6:g} ms"
    yield f"Packets have {emulators.MTU} bytes"
    yield f"Datagrams have at most {emulators.MTU} bytes"
    yield f"vary by {100 * workload_keys.ASSUMED_STEP_CV:g} % (assumed)"
    yield f"(`workload.warmup`, {WARMUP}"
    yield f"more than {fidelity.OTHERS_PCT:g} % of all processors"
    yield f"If the noise is above {100 * NOISE_LIMIT:g} % (or half of `gate.max_slowdown`"
    yield f"at most {timeline.MOST_LINES} lines"
    yield f"RTT + {MIN_TIMEOUT_NS / 1e6:g} ms"
    yield f"gloo's {GLOO_SEGMENT_BYTES >> 20} MiB segments"
    yield f"simulates {question._SHORT_WINDOW} instead of {question._WINDOW.removesuffix(' steps')}"
    headers = emulators.MTU - SEGMENT_BYTES
    yield f"plus packet headers ({100 * headers / SEGMENT_BYTES:.1f} %)"
    yield f"({100 * headers / (2 * SEGMENT_BYTES):.1f} % of the bytes)"
    poster = BUILTINS["resnet50-sgp-poster"]
    yield f"({1e3 * poster.step_time_s:.0f} ms per step, varying by {100 * poster.step_cv:.0f} %)"
    fitted = [one.at for figure in papers.load("sgp").figures for one in figure.published if one.mark == "fitted"]
    yield f"all-reduce times on {' and '.join(dict.fromkeys(fitted))} nodes"
    yield f"a simulation of {f'{law._DRAWS:,}'.replace(',', ' ')} draws"
    yield f"change a step by more than {100 * (_CLOSE - 1):.0f} %"
    yield f"from {stdlib.TEST_WINDOWS} windows of {stdlib.CONTEXT} bytes"
    yield "codes of 2, 4 or 8 bits"
    yield f"into {(4096 - 1).bit_length()} bits for chunks of 4096"
    yield f"can hold for {1e3 * datagram.ABSORBED_S:g} ms"
    yield f"{100 * tables.GateTable().loss_band:.0f} % by default"
    yield f"The first {meter.JOURNAL_LIMIT} messages"
    yield f"at most {content._MOST_FIGURES} figures"
    yield f"at nice {priority._HIGHEST}"


def of_published():
    published = scripts.load("benchmarks/published.py")
    predictions = published.read(published.FOLDER / published.PREDICTIONS)
    sources = published.load(published.FOLDER)
    lines = published.counted(sources, predictions)
    blind = {name: source for name, source in sources.items() if not source.seen}
    agreement = published.Agreement.together(blind, {name: lines[name] for name in blind})
    yield f"Of {len(agreement.errors)} numbers in sources that were blind, {agreement.near} are predicted within 10 %"
    errors = [100 * line["error"] for line in lines["gloo-aws-tc"]]
    yield f"{len(errors)} published times on AWS are predicted at {max(errors):.0f} to {min(errors):.0f} %"


def alone(text, fragments):
    """The numbers of a text that are in none of the fragments, with what is around them."""
    flat = " ".join(SKIPPED.sub(lambda match: match.group() if match.group()[0] == "`" else " ", text).split())
    covered = [span.span() for part in fragments for span in re.finditer(re.escape(part), flat)]
    covered += [span.span() for span in re.finditer(r"`[^`]*`", flat)]
    return [
        flat[max(0, found.start() - 40) : found.end() + 20]
        for found in NUMBER.finditer(flat)
        if not any(start <= found.start() and found.end() <= end for start, end in covered)
    ]


@pytest.fixture(scope="module")
def tied():
    return [sentence for subject in (*SUBJECTS, of_code, of_gate, of_published) for sentence in subject()]


@pytest.mark.parametrize("path", LIMITS)
def test_every_number_of_a_text_on_limits_follows_from_rows_or_code_or_has_a_date_and_a_program(tied, path):
    assert alone(LIMITS[path], [*tied, *BY_HAND, *NAMES]) == []


def test_each_sentence_that_follows_from_the_code_is_there():
    flat = " ".join(" ".join(LIMITS.values()).split())
    assert [sentence for sentence in (*of_code(), *of_gate(), *of_published()) if sentence not in flat] == []


def test_what_was_measured_by_hand_says_when_and_by_what_program():
    bullets = [" ".join(part.split()) for part in re.split(r"\n(?=\* |\d+\. |\n)", "\n".join(LIMITS.values()))]
    for sentence, program in BY_HAND.items():
        (bullet,) = [bullet for bullet in bullets if sentence in bullet]
        assert f"(`{program}`, November 2026)" in bullet
        assert (ROOT / program).is_file()


def test_the_prose_of_the_readme_has_no_number_of_its_own():
    python = re.search(r'requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))[1]
    said = [f"Python {python}+", f"Exit code {EXIT_REGRESSION} means a regression"]
    said.append("it takes 6 minutes, the parts of `make test` 33 (November 2026)")  # in a fresh clone
    said.append("the userspace relay carries 5 to 10 Gbit/s")  # LIMITATIONS has its date and program
    assert alone((ROOT / "README.md").read_text(encoding="utf-8"), said) == []


def test_the_captions_of_pictures_in_documents_have_only_numbers_of_rows():
    emulated = re.match(r"Of (\d+) networks", next(parity()))[1]
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        text = path.read_text(encoding="utf-8")
        captions = re.findall(r"!\[([^]]*)\]", text) + re.findall(r"!\[[^]]*\]\([^)]*\)\n\n\*([^*]+)\*", text)
        assert [found for caption in captions for found in alone(caption, [f"{emulated} random cells"])] == [], path


def conditions(run):
    """The numbers that say what a recorded run is, in the units in which captions have them."""
    found = {f"{value:g}" for row in rows(run) for value in conditions_of(row)}
    spec = (REFERENCE / run / "spec.toml").read_text(encoding="utf-8")
    return found | {f"{float(value):g}" for value in re.findall(r"[\d.]*\d", spec)}


def conditions_of(row):
    for name in ("workers", "rtt_ms", "loss_pct", "payload_scale", "rate_mbps"):
        if row[name] is not None:
            yield row[name]
            yield row[name] / 1e3
    for value in row["params"].values():
        if isinstance(value, dict):
            yield 100 * value.get("ratio", 0.01)  # top-k's default
        elif isinstance(value, int | float):
            yield value


@pytest.mark.parametrize("name", papers.names())
def test_a_number_in_the_title_or_note_of_a_figure_is_a_condition_of_its_run_or_published(name):
    """Results come into titles by {series|x|measure}."""
    paper = papers.load(name)
    claimed = claims.load(name).claim if name in claims.names() else []
    printed = {number for claim in claimed for number in re.findall(r"[\d.]*\d", claim.theirs)}
    fitted = {one.at for figure in paper.figures for one in figure.published}
    for figure in paper.figures:
        text = re.sub(
            r"\{[^}]*\}|Fig\. \d\w?|Table \d\w?",
            "",
            " ".join(filter(None, (figure.title, figure.note, figure.subject))),
        )
        numbers = {found.replace(",", "") for found in NUMBER.findall(text)}
        runs = [run for run in (figure.run, figure.beside, *paper.runs) if run is not None]
        known = set().union(printed, fitted, *map(conditions, runs))
        known |= {f"{100 * float(value):g}" for value in known if float(value) < 1}
        windows = (emulators._LARGEST_BUFFER_BYTES + 1) / 2 / (1 << 30), KERNELS["stock-6.1"].in_flight / 1e6
        assert numbers <= known | {f"{window:.3g}" for window in windows} | {"0"}, (figure.name, numbers - known)


def test_the_notes_of_profiles_follow_from_their_values():
    notes = {name: " ".join(netprofiles.load(name).notes) for name in netprofiles.catalog_names()}
    dts, rate = BUILTINS["resnet50-v100"], 42.3e6
    nbytes = 4 * sum(tensor.numel for tensor in dts.tensors())
    step_s = dts.step_time_s + 2 * 0.479 + 2 * (15 / 16) * 8 * nbytes / rate
    assert (
        f"{nbytes / 1e6:.2f} MB / rate = {step_s:.1f} s, a scalability of {dts.step_time_s / step_s:.3f}"
        in notes["paper-dts"]
    )
    for workers in (4, 32):
        seconds = 2 * (workers - 1) / workers * 8 * nbytes / 10e9
        assert f"{seconds:.2f} s on {workers}" in notes["sgp-poster"]
    assert "The window of an untuned host limits one TCP connection to much less" in notes["world4"]
    assert 8e-6 * KERNELS["stock-6.1"].in_flight / 0.1 < 300  # Mbit/s on its paths, whose rates are in Gbit/s


def test_the_page_on_step_times_has_the_times_to_a_model_of_machines_that_differ():
    text = " ".join((ROOT / "docs/explanation/step-time.md").read_text().split())
    for algorithm in ("async-local-sgd-p10", "adpsgd", "diloco-p10", "dts-d20-p4", "ssgd"):
        times = sorted(row["time_to_target_s"] for row in rows("uneven", algorithm=algorithm))
        assert f"{median(times):.0f} s ({times[0]:.0f} to {times[-1]:.0f})" in text, algorithm


def test_the_page_on_step_times_has_the_all_reduces_with_losses():
    with (REFERENCE / "collectives" / "collectives.csv").open(encoding="utf-8") as file:
        over = {
            row["collective"]: float(row["over"]) for row in csv.DictReader(file) if "1.02 MB, loss" in row["change"]
        }
    text = (ROOT / "docs/explanation/step-time.md").read_text()
    assert f"| loss of 0.1 %, 1 MB | {over['direct']:.1f} |" in text
    assert (
        f"with 4 and 16 connections for each pair {over['direct-4']:.1f} and {over['direct-16']:.1f} (simulated)"
        in text
    )
