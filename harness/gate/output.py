"""A report for people and CI systems: text for a terminal, Markdown, annotations of GitHub Actions, and JUnit XML.

The worst verdicts come first, so that a limit on the output cuts off the least.
"""

import re
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from xml.etree import ElementTree

from wanbench.harness.errors import writing
from wanbench.harness.gate.verdict import ORDER, Judgement, Report, Timing, Verdict, by_severity
from wanbench.harness.results.disk import write_text
from wanbench.harness.show.grid import aligned, as_written, markdown
from wanbench.harness.text import listed

_TIMING_HEADER = ("base s/step", "head s/step", "change", "95 % interval", "noise", "margin", "pairs")
_QUIET = {Verdict.UNCHANGED, Verdict.ACCEPTED}

# ------------------------------------------------------------------ terminal


def as_text(report: Report) -> str:
    """The cells that changed, then the number of cells per verdict. It ends in a newline."""
    parts = [f"{report.experiment}: {report.against}", ""]
    parts += [f"{table}\n" for table in (_cells_table(report), _claims_table(report.claims)) if table]
    parts += [f"note: {note}" for note in report.notes]
    return "\n".join([*parts, _judged(report), _totals(report)]) + "\n"


def _cells_table(report: Report) -> str:
    timed = any(finding.timing for finding in report.cells)
    shown = by_severity(report.cells if timed else (f for f in report.cells if f.verdict not in _QUIET))
    if report.overall is not None:
        shown.append(report.overall)
    lines = [
        [finding.cell, *(_timing_columns(finding.timing) if timed else ()), _remark(_word(finding), finding.text)]
        for finding in shown
    ]
    header = ["cell", *(_TIMING_HEADER if timed else ()), "verdict", ""]
    return aligned(header, lines).rstrip("\n") if lines else ""


def _claims_table(claims: Sequence[Judgement]) -> str:
    lines = [[claim.cell, _remark(_claim_word(claim), claim.text)] for claim in by_severity(claims)]
    return aligned(["requirement", "", ""], lines).rstrip("\n") if lines else ""


def _remark(verdict: str, text: str) -> str:
    return f"{verdict:9}  {text}".rstrip()


def _timing_columns(timing: Timing | None) -> list[str]:
    if timing is None:
        return [""] * len(_TIMING_HEADER)
    times = ["" if time is None else f"{time:.4f}" for time in (timing.base_s, timing.head_s)]
    change = "" if timing.change is None else f"{100 * timing.change:+z.1f} %"
    has_interval = timing.low is not None and timing.high is not None
    interval = f"[{100 * (timing.low or 0):+z.1f}, {100 * (timing.high or 0):+z.1f}]" if has_interval else ""
    noise = "unknown" if timing.noise is None else f"{100 * timing.noise:.1f} %"
    return [*times, change, interval, noise, f"{100 * timing.margin:.1f} %", str(timing.pairs)]


def _judged(report: Report) -> str:
    """How much was judged, and the user's code that it depends on, in one line."""
    cells, claims = report.judged
    counted = f"{cells} comparison{'s' * (cells != 1)} and {claims} requirement{'s' * (claims != 1)} judged"
    return f"{counted}; your code: {', '.join(report.code) or 'none'}"


def _totals(report: Report) -> str:
    """The number of cells per verdict and of requirements that are not met, in one line."""
    counted = [(sum(finding.verdict is verdict for finding in report.compared), str(verdict)) for verdict in ORDER]
    verdicts = ", ".join(f"{count} {word}" for count, word in counted if count) or "no cell was compared"
    if not report.claims:
        return f"{verdicts}."
    total = len(report.claims)
    broken = sum(claim.verdict is not Verdict.UNCHANGED for claim in report.claims)
    plural = f"{total} requirement{'s' * (total > 1)}"
    return f"{verdicts}; " + (f"{broken} of {plural} not met." if broken else f"{plural} met.")


def _word(finding: Judgement) -> str:
    """The verdict, in capitals if it needs attention."""
    loud = finding.verdict in {Verdict.FAILED, Verdict.REGRESSED, Verdict.IMPROVED}
    return str(finding.verdict).upper() if loud else str(finding.verdict)


def _claim_word(finding: Judgement) -> str:
    return {Verdict.UNCHANGED: "met", Verdict.REGRESSED: "NOT MET"}.get(finding.verdict, _word(finding))


# ------------------------------------------------------------------ Markdown, for the summary of a CI step

GITHUB_LIMIT_BYTES = 1 << 20  # of all summaries of a step


def append_summary(path: Path, report: Report) -> None:
    """Append the report to a file that can hold other summaries of the same step. Raises: HostError."""
    with writing(path, "the summary"):
        used = path.stat().st_size if path.exists() else 0
        with path.open("a", encoding="utf-8") as handle:
            handle.write(as_markdown(report, max(0, GITHUB_LIMIT_BYTES - used)))


def as_markdown(report: Report, limit_bytes: int = GITHUB_LIMIT_BYTES) -> str:
    """The report in at most this many bytes of UTF-8, ending in a newline. Omitted lines are counted."""
    parts = [f"### wanbench check: {as_written(report.experiment)}", "", f"**{_totals(report)}**", "",
             f"{as_written(report.against)}. {as_written(_judged(report))}.", ""]  # fmt: skip
    parts += [f"> {as_written(note)}" for note in report.notes] + [""] * bool(report.notes)
    lines = ["\n".join(parts)]
    if report.claims:
        claims = [(claim.cell, _claim_word(claim), claim.text) for claim in by_severity(report.claims)]
        lines += [*markdown(("requirement", "result", "value"), claims).splitlines(), ""]
    timed = any(finding.timing for finding in report.cells)
    shown = [finding for finding in by_severity(report.compared) if timed or finding.verdict not in _QUIET]
    if shown:
        cells = [
            (finding.cell, _word(finding), finding.text, *(_timing_columns(finding.timing) if timed else ()))
            for finding in shown
        ]
        header = ("cell", "verdict", "reason", *(_TIMING_HEADER if timed else ()))
        lines += [*markdown(header, cells).splitlines(), ""]
    return _cut(lines, limit_bytes)


def _cut(lines: Sequence[str], limit: int) -> str:
    """As many whole lines as fit, and the number of the others."""
    text = "\n".join(lines) + "\n"
    if len(text.encode()) <= limit:
        return text
    remark = "\n{} more lines; see the log of the job\n"
    room = limit - len(remark.format(len(lines)))
    kept = sum(used <= room for used in accumulate(len(line.encode()) + 1 for line in lines))
    return "".join(f"{line}\n" for line in lines[:kept]) + remark.format(len(lines) - kept) if room >= 0 else ""


# ------------------------------------------------------------------ annotations of GitHub Actions

MOST = 10  # annotations that GitHub shows for a step
_NAMED = 5  # cells that get their own annotation
_LISTED = 10  # names of cells in one annotation
_LEVELS = {
    Verdict.FAILED: "error",
    Verdict.REGRESSED: "error",
    Verdict.INCONCLUSIVE: "warning",
    Verdict.NOT_COMPARABLE: "warning",
    Verdict.NEW: "warning",
    Verdict.IMPROVED: "notice",
}


def as_annotations(report: Report, spec_file: str) -> list[str]:
    """Lines to print: one per verdict that needs attention, then the worst cells, within the limit.

    Args:
        spec_file: the file that annotations point to.
    """
    lines = []
    for verdict, level in _LEVELS.items():
        cells = [finding.cell for finding in report.findings if finding.verdict is verdict]
        if cells:
            lines.append(_annotation(level, spec_file, f"{len(cells)} {verdict}: {listed(cells, _LISTED)}"))
    loud = [f for f in report.findings if f.verdict in {Verdict.FAILED, Verdict.REGRESSED}]
    for finding in sorted(loud, key=lambda finding: finding.change or 0.0, reverse=True)[:_NAMED]:
        change = "" if finding.change is None else f" {100 * finding.change:+z.1f} %"
        text = f"{finding.cell}: {finding.verdict}{change}" + (f", {finding.text}" if finding.text else "")
        lines.append(_annotation("error", spec_file, text))
    return lines[:MOST]


def _annotation(level: str, file: str, text: str) -> str:
    """A line in the format of "Workflow commands for GitHub Actions". Properties also escape commas and colons."""
    properties = _escaped(file).replace(",", "%2C").replace(":", "%3A")
    return f"::{level} file={properties},title=wanbench check::{_escaped(text)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


# ------------------------------------------------------------------ JUnit

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# The element of each verdict that is not a success.
_ELEMENTS = {
    Verdict.FAILED: "error",
    Verdict.REGRESSED: "failure",
    Verdict.INCONCLUSIVE: "skipped",
    Verdict.NOT_COMPARABLE: "skipped",
    Verdict.NEW: "skipped",
}


def write_junit(path: Path, report: Report) -> None:
    """Replace the file. Raises: HostError."""
    with writing(path, "JUnit XML"):
        write_text(path, as_junit(report))


def as_junit(report: Report) -> str:
    """A document with a test case per cell and per requirement, ending in a newline."""
    every = [("cells", finding) for finding in report.compared] + [
        ("requirements", finding) for finding in report.claims
    ]
    kinds = [_ELEMENTS.get(finding.verdict) for _, finding in every]
    suite = ElementTree.Element("testsuite", name=f"wanbench check {report.experiment}", tests=str(len(every)))
    for attribute, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(kinds.count(kind)))
    for (group, finding), element in zip(every, kinds, strict=True):
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"{report.experiment}.{group}", name=_NOT_XML.sub("?", finding.cell)
        )
        if element is not None:
            ElementTree.SubElement(case, element, message=_message(finding, str(finding.verdict)))
        elif finding.text:
            result = _claim_word(finding) if group == "requirements" else str(finding.verdict)
            ElementTree.SubElement(case, "system-out").text = _message(finding, result)
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _message(finding: Judgement, verdict: str) -> str:
    change = "" if finding.change is None else f" ({100 * finding.change:+z.1f} %)"
    return _NOT_XML.sub("?", f"{verdict}{change}" + (f": {finding.text}" if finding.text else ""))
