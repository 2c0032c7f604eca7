"""Workflow commands of GitHub Actions. It shows at most ten annotations per step, so the worst come first."""

from __future__ import annotations

from wanbench.harness.gate.verdict import Judgement, Report, Verdict
from wanbench.harness.text import some

MOST = 10
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


def commands(report: Report, spec_file: str) -> list[str]:
    """Lines to print: one per verdict that needs attention, then the worst cells, within the limit.

    Args:
        spec_file: the file that annotations point to.
    """
    lines = []
    for verdict, level in _LEVELS.items():
        found = [finding for finding in report.findings if finding.verdict is verdict]
        if found:
            names = [finding.cell for finding in found]
            lines.append(_command(level, spec_file, f"{len(found)} {verdict}: {some(names, _LISTED)}"))
    named = [_finding(finding, spec_file) for finding in _worst(report)]
    return (lines + named)[:MOST]


def _worst(report: Report) -> list[Judgement]:
    """The cells that slowed down the most, among those that fail a build."""
    loud = [f for f in report.findings if f.verdict in {Verdict.FAILED, Verdict.REGRESSED}]
    return sorted(loud, key=lambda finding: finding.change or 0.0, reverse=True)[:_NAMED]


def _finding(finding: Judgement, spec_file: str) -> str:
    change = "" if finding.change is None else f" {100 * finding.change:+z.1f} %"
    text = f"{finding.cell}: {finding.verdict}{change}" + (f", {finding.text}" if finding.text else "")
    return _command("error", spec_file, text)


def _command(level: str, file: str, text: str) -> str:
    """A line in the format of "Workflow commands for GitHub Actions". Properties also escape commas and colons."""
    properties = _escaped(file).replace(",", "%2C").replace(":", "%3A")
    return f"::{level} file={properties},title=wanbench check::{_escaped(text)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
