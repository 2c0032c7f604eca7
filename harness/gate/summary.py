"""A report in Markdown for the summary of a CI step. The worst verdicts come first, so that cutting loses the least."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wanbench.harness.errors import writing
from wanbench.harness.gate.text import TIMING_HEADER, claim_word, judged, timing_columns, totals, word
from wanbench.harness.gate.verdict import Judgement, Report, Verdict, by_severity
from wanbench.harness.show.grid import as_written, markdown

GITHUB_LIMIT_BYTES = 1 << 20  # of all summaries of a step
_QUIET = {Verdict.UNCHANGED, Verdict.ACCEPTED}


def as_markdown(report: Report, limit_bytes: int = GITHUB_LIMIT_BYTES) -> str:
    """The report in at most this many bytes of UTF-8, ending in a newline. Omitted lines are counted."""
    parts = [f"### wanbench check: {as_written(report.experiment)}", "", f"**{totals(report)}**", "",
             f"{as_written(report.against)}. {as_written(judged(report))}.", ""]  # fmt: skip
    parts += [f"> {as_written(note)}" for note in report.notes] + [""] * bool(report.notes)
    lines = ["\n".join(parts)]
    if report.claims:
        rows = [(claim.cell, claim_word(claim), claim.text) for claim in by_severity(report.claims)]
        lines += _table(("requirement", "result", "value"), rows)
    timed = any(finding.timing for finding in report.cells)
    cells = by_severity(report.compared)
    shown = cells if timed else [finding for finding in cells if finding.verdict not in _QUIET]
    if shown:
        header = ("cell", "verdict", "reason", *(TIMING_HEADER if timed else ()))
        lines += _table(header, [_row(finding, timed) for finding in shown])
    return _cut(lines, limit_bytes)


def append(path: Path, report: Report) -> None:
    """Append the report to a file that can hold other summaries of the same step. Raises: HostError."""
    with writing(path, "the summary"):
        used = path.stat().st_size if path.exists() else 0
        with path.open("a", encoding="utf-8") as handle:
            handle.write(as_markdown(report, max(0, GITHUB_LIMIT_BYTES - used)))


def _row(finding: Judgement, timed: bool) -> tuple[str, ...]:
    return finding.cell, word(finding), finding.text, *(timing_columns(finding.timing) if timed else ())


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [*markdown(header, rows).splitlines(), ""]


def _cut(lines: Sequence[str], limit: int) -> str:
    """As many whole lines as fit, and the number of the others."""
    text = "\n".join(lines) + "\n"
    if len(text.encode()) <= limit:
        return text
    kept, used = [], 0
    reserve = len(f"\n{len(lines)} more lines; see the log of the job\n")
    for line in lines:
        used += len(line.encode()) + 1
        if used + reserve > limit:
            break
        kept.append(line)
    remark = f"\n{len(lines) - len(kept)} more lines; see the log of the job\n"
    whole = "".join(f"{line}\n" for line in kept) + remark
    return whole if len(whole.encode()) <= limit else ""
