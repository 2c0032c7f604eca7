"""The claims of a paper and what recorded runs say about them, as a table."""

from __future__ import annotations

from wanbench.harness.show import papers
from wanbench.harness.show.grid import markdown
from wanbench.harness.show.papers.claims import answers
from wanbench_docs.curves import RECORDED
from wanbench_docs.markdown import escaped

_HEADER = ("in the paper", "it says", "theirs", "ours", "how", "verdict")


def of_claims(name: str) -> str:
    """Return all claims of a paper, in its order."""
    paper = papers.load(name)
    rows = [
        (escaped(one.claim.place), escaped(one.claim.text), one.claim.theirs, one.ours, escaped(one.how), one.verdict)
        for one in answers(paper, RECORDED)
    ]
    return f"## {escaped(paper.title)}\n\n{escaped(paper.citation)}.\n\n{markdown(_HEADER, rows)}\n"
