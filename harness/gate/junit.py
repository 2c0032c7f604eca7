"""A report as JUnit XML, with a test case per cell and per requirement."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from wanbench.harness.errors import writing
from wanbench.harness.gate.text import claim_word
from wanbench.harness.gate.verdict import Judgement, Report, Verdict
from wanbench.harness.results.disk import write_text

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# The element of each verdict that is not a success.
_ELEMENTS = {
    Verdict.FAILED: "error",
    Verdict.REGRESSED: "failure",
    Verdict.INCONCLUSIVE: "skipped",
    Verdict.NOT_COMPARABLE: "skipped",
    Verdict.NEW: "skipped",
}


def as_junit(report: Report) -> str:
    """The document, ending in a newline."""
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
            result = claim_word(finding) if group == "requirements" else str(finding.verdict)
            ElementTree.SubElement(case, "system-out").text = _message(finding, result)
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def write(path: Path, report: Report) -> None:
    """Replace the file. Raises: HostError."""
    with writing(path, "JUnit XML"):
        write_text(path, as_junit(report))


def _message(finding: Judgement, verdict: str) -> str:
    change = "" if finding.change is None else f" ({100 * finding.change:+z.1f} %)"
    text = f"{verdict}{change}" + (f": {finding.text}" if finding.text else "")
    return _NOT_XML.sub("?", text)
