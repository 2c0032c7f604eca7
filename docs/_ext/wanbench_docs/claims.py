"""The claims of a paper and what recorded runs say about them, and the recorded runs themselves, as tables."""

from __future__ import annotations

from wanbench.harness.results.store import RunFolder
from wanbench.harness.show import papers
from wanbench.harness.show.papers.claims import answers
from wanbench.harness.text import shown
from wanbench_docs.curves import RECORDED
from wanbench_docs.markdown import escaped, markdown

_HEADER = ("in the paper", "it says", "theirs", "ours", "how", "verdict")


def of_claims(name: str) -> str:
    """Return all claims of a paper, in its order."""
    paper = papers.load(name)
    rows = [
        (escaped(one.claim.place), escaped(one.claim.text), one.claim.theirs, one.value, escaped(one.how), one.verdict)
        for one in answers(paper, RECORDED)
    ]
    return f"## {escaped(paper.title)}\n\n{escaped(paper.citation)}.\n\n{markdown(_HEADER, rows)}\n"


_RUN_HEADER = ("run", "repetitions", "emulated", "commit", "pauses", "digests", "latest packets")


def of_recordings() -> str:
    """Return every recorded run, and what was not checked when it was measured."""
    folders = [RunFolder(path.parent) for path in sorted(RECORDED.glob("*/rows.jsonl"))]
    return markdown(_RUN_HEADER, map(_recording, folders)) + "\n"


def _recording(folder: RunFolder) -> list[str]:
    rows = [row for row in folder.rows() if row["status"] == "ok"]
    emulated = [row for row in rows if row["testbed"] != "virtual"]
    commit, dirty, _ = str(folder.manifest()["git"]).partition("-dirty")
    late = max((row["lateness_p99_ms"] for row in emulated if row["lateness_p99_ms"] is not None), default=None)
    counted = all(row["paused_pct"] is not None for row in emulated)
    return [
        f"`{folder.name}`",
        str(len(rows)),
        str(len(emulated)),
        f"`{commit}`" + (" with changes" if dirty else ""),
        ("counted" if counted else "not counted") if emulated else "-",
        "yes" if (folder.path / "digests.jsonl").exists() else "no",
        shown(None if late is None else round(late, 1)),
    ]
