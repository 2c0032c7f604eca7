"""A report for a terminal: the cells that changed, then the number of cells per verdict."""

from __future__ import annotations

from collections.abc import Sequence

from wanbench.harness.gate.verdict import ORDER, Judgement, Report, Timing, Verdict, by_severity
from wanbench.harness.show.grid import aligned

_CLAIM_WORDS = {Verdict.UNCHANGED: "met", Verdict.REGRESSED: "NOT MET"}
_QUIET = (Verdict.UNCHANGED, Verdict.ACCEPTED)
TIMING_HEADER = ("base s/step", "head s/step", "change", "95 % interval", "noise", "margin", "pairs")


def as_text(report: Report) -> str:
    """The report, ending in a newline."""
    tables = [_cells(report), _claims(report.claims) if report.claims else ""]
    parts = [f"{report.experiment}: {report.against}", ""]
    parts += [f"{table}\n" for table in tables if table]
    parts += [f"note: {note}" for note in report.notes]
    return "\n".join([*parts, judged(report), totals(report)]) + "\n"


def judged(report: Report) -> str:
    """How much was judged, and the user's code that it depends on, in one line."""
    cells, claims = report.judged
    counted = f"{cells} comparison{'s' * (cells != 1)} and {claims} requirement{'s' * (claims != 1)} judged"
    return f"{counted}; your code: {', '.join(report.code) or 'none'}"


def totals(report: Report) -> str:
    """The number of cells per verdict and of requirements that are not met, in one line."""
    counted = [(sum(finding.verdict is verdict for finding in report.compared), str(verdict)) for verdict in ORDER]
    verdicts = ", ".join(f"{count} {word}" for count, word in counted if count) or "no cell was compared"
    broken = sum(claim.verdict is not Verdict.UNCHANGED for claim in report.claims)
    if not report.claims:
        return f"{verdicts}."
    total = len(report.claims)
    plural = f"{total} requirement{'s' * (total > 1)}"
    return f"{verdicts}; " + (f"{broken} of {plural} not met." if broken else f"{plural} met.")


def word(finding: Judgement) -> str:
    """The verdict, in capitals if it needs attention."""
    loud = finding.verdict in {Verdict.FAILED, Verdict.REGRESSED, Verdict.IMPROVED}
    return str(finding.verdict).upper() if loud else str(finding.verdict)


def claim_word(finding: Judgement) -> str:
    """The verdict on a requirement."""
    return _CLAIM_WORDS.get(finding.verdict, word(finding))


def timing_columns(timing: Timing | None) -> list[str]:
    """The columns of `TIMING_HEADER`."""
    if timing is None:
        return [""] * len(TIMING_HEADER)
    times = ["" if time is None else f"{time:.4f}" for time in (timing.base_s, timing.head_s)]
    change = "" if timing.change is None else f"{100 * timing.change:+z.1f} %"
    known = timing.low is not None and timing.high is not None
    interval = f"[{100 * (timing.low or 0):+z.1f}, {100 * (timing.high or 0):+z.1f}]" if known else ""
    noise = "unknown" if timing.noise is None else f"{100 * timing.noise:.1f} %"
    return [*times, change, interval, noise, f"{100 * timing.margin:.1f} %", str(timing.pairs)]


def _cells(report: Report) -> str:
    timed = any(finding.timing for finding in report.cells)
    shown = by_severity(report.cells if timed else (f for f in report.cells if f.verdict not in _QUIET))
    header = ["cell", *(TIMING_HEADER if timed else ()), "verdict", ""]
    lines = [_line(finding, timed) for finding in shown]
    if report.overall is not None:
        lines.append(_line(report.overall, timed))
    return aligned(header, lines).rstrip("\n") if lines else ""


def _line(finding: Judgement, timed: bool) -> list[str]:
    columns = timing_columns(finding.timing) if timed else []
    return [finding.cell, *columns, _remark(word(finding), finding.text)]


def _remark(verdict: str, text: str) -> str:
    return f"{verdict:9}  {text}".rstrip()


def _claims(claims: Sequence[Judgement]) -> str:
    lines = [[claim.cell, _remark(claim_word(claim), claim.text)] for claim in by_severity(claims)]
    return aligned(["requirement", "", ""], lines).rstrip("\n")
