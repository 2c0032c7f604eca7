"""The claims of papers beside every recorded run that bears on them, and the recorded runs themselves, as tables.

`docs/reference/claims/<name>.toml` lists the sentences of a paper that have a number or a comparison. A `[[claim]]`
says what the recordings should show if it is true. Which of them bear on it is not listed: `evidence.py` finds all.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from wanbench.harness.analysis.paired import MeanInterval
from wanbench.harness.errors import SpecError
from wanbench.harness.results.store import RunFolder
from wanbench.harness.text import listed, shown
from wanbench_docs.curves import RECORDED
from wanbench_docs.evidence import Evidence, Question, bearing, tabled
from wanbench_docs.markdown import escaped, markdown

_FOLDER = Path(__file__).resolve().parents[2] / "reference" / "claims"
_BY_STEP = {"accuracy", "payload_bytes"}  # they do not depend on the network's times
_NEAR_PCT = 10.0  # a value this close to a published one agrees with it
_TOGETHER = 6  # more cells of one recording than this share a line, which names as many as follows
_NAMED = 3

HOLDS, CONTRADICTED, UNDECIDED, NOT_JUDGED, OPEN = VERDICTS = (
    "holds",
    "contradicted",
    "undecided",
    "not judged",
    "open",
)


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Claim(_Table):
    """A sentence of the paper, and what is asked of the recordings.

    Attributes:
        place: in the paper. text: what it says. theirs: its value as text; "picture" if it is not printed.
        why: why no recording bears on it; the keys below are for those on which some do.
        value, per, where, over, minus, minus_at, scale: as in `Question`. unit: for display.
        table: a CSV file below `results/reference/` to ask instead of runs.
        published: the value to compare with. least, most: or its bounds.
        repeated: recordings, each with another that repeats it with more seeds: if the other decides, what is undecided
            in it is not judged.
        aside: recordings, or conditions of designs, that are shown but not judged, with the reason; "*" is every one.
    """

    place: str
    text: str
    theirs: str
    why: str | None = None
    value: str | None = None
    per: str | None = None
    where: dict[str, Any] = {}
    over: dict[str, float | int | str] | None = None
    minus: dict[str, float | int | str] | None = None
    minus_at: dict[str, float | int | str] | None = None
    scale: float = 1.0
    unit: str = ""
    table: str | None = None
    published: float | None = None
    least: float | None = None
    most: float | None = None
    repeated: dict[str, str] = {}
    aside: dict[str, str] = {}

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the most that a value may be."""
        if self.published is not None:
            off = abs(self.published) * _NEAR_PCT / 100
            return self.published - off, self.published + off
        inf = float("inf")
        return -inf if self.least is None else self.least, inf if self.most is None else self.most

    @property
    def asked(self) -> str:
        """What a value is judged by, as text."""
        unit = self.unit and f" {self.unit}"
        if self.published is not None:
            return f"within {_NEAR_PCT:g} %"
        ends = ("at least", self.least), ("at most", self.most)
        return ", ".join(f"{name} {end:g}{unit}" for name, end in ends if end is not None)


class Sheet(_Table):
    """The claims of a paper: the whole file. `read` says which of its texts could be read."""

    title: str
    citation: str
    read: str
    claim: list[Claim]


def names() -> list[str]:
    """The papers whose claims are answered."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def load(name: str) -> Sheet:
    """Read the claims of a paper. Raises: SpecError, ValueError: one is wrong."""
    return parse(name, (_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def parse(name: str, text: str) -> Sheet:
    """The claims of a paper from the text of their file. Raises: SpecError, ValueError."""
    sheet = Sheet.model_validate(tomllib.loads(text))
    for claim in sheet.claim:
        judged = claim.published is not None or claim.least is not None or claim.most is not None
        if (claim.why is None) != (claim.value is not None) or (claim.value is not None) != judged:
            raise SpecError(
                f"{name}.toml: claim {claim.place!r}: expected a value, and published, least or most; or why no "
                "recording bears on it"
            )
    return sheet


@dataclass(frozen=True)
class Answer:
    """What one recorded cell says: the verdict, and why it is not judged if it is not."""

    evidence: Evidence
    verdict: str
    why_not: str = ""


@dataclass(frozen=True)
class Answered:
    """A claim with the answers of all recordings that bear on it."""

    claim: Claim
    answers: Sequence[Answer]

    @property
    def counts(self) -> Counter[str]:
        """How many judged answers have which verdict."""
        return Counter(answer.verdict for answer in self.answers if answer.verdict != NOT_JUDGED)

    @property
    def verdict(self) -> str:
        """Contradicted if any answer contradicts, otherwise undecided if any is, and holds only if all hold."""
        if not self.answers:
            return OPEN
        return next((verdict for verdict in (CONTRADICTED, UNDECIDED, HOLDS) if self.counts[verdict]), NOT_JUDGED)


def answered(claims: Iterable[Claim], reference: Path) -> list[Answered]:
    """Answer claims from the recordings below a folder, and the learning library.

    Raises:
        SpecError: no recording has what a claim asks for, or one that is set aside is not among the answers.
    """
    return [_answered(claim, reference) for claim in claims]


def _answered(claim: Claim, reference: Path) -> Answered:
    if claim.value is None:
        return Answered(claim, [])
    question = Question(claim.value, claim.per, claim.where, claim.over, claim.minus, claim.minus_at, claim.scale)
    found = bearing(question, reference) if claim.table is None else tabled(question, reference / claim.table)
    if not found:
        raise SpecError(f"claim {claim.place!r}: no recording has {claim.value} of {claim.where}")
    known = {"*", *(name for one in found for name in (one.recording, one.condition))}
    if unknown := {*claim.aside, *claim.repeated, *claim.repeated.values()} - known:
        raise SpecError(f"claim {claim.place!r}: {min(unknown)!r} is none of its recordings")
    answers = [_judged(claim, one) for one in found]
    decided = {answer.evidence.recording for answer in answers if answer.verdict in (HOLDS, CONTRADICTED)}
    return Answered(claim, [_unless_repeated(claim, answer, decided) for answer in answers])


def _unless_repeated(claim: Claim, answer: Answer, decided: Set[str]) -> Answer:
    by = claim.repeated.get(answer.evidence.recording)
    if answer.verdict != UNDECIDED or by not in decided:
        return answer
    return Answer(answer.evidence, NOT_JUDGED, f"undecided, and `{by}` repeats it with more seeds")


def _judged(claim: Claim, evidence: Evidence) -> Answer:
    aside = next(
        (claim.aside[key] for key in (evidence.recording, evidence.condition, "*") if key in claim.aside), None
    )
    why_not = aside or evidence.why_not
    if why_not is not None or evidence.estimate is None:
        return Answer(evidence, NOT_JUDGED, why_not or "")
    (least, most), ours = claim.bounds, evidence.estimate
    if least <= ours.low and ours.high <= most:
        return Answer(evidence, HOLDS)
    return Answer(evidence, CONTRADICTED if ours.high < least or ours.low > most else UNDECIDED)


_HEADER = ("in the paper, *recording*", "it says, *what was run*", "theirs, *ours*", "bounds, *how*", "verdict")


def of_claims(name: str) -> str:
    """Return all claims of a paper, in its order, each above what was recorded."""
    sheet = load(name)
    rows = [row for one in answered(sheet.claim, RECORDED) for row in table_rows(one)]
    about = f"{escaped(sheet.citation)}. {escaped(sheet.read)}"
    return f"## {escaped(sheet.title)}\n\n{about}\n\n{markdown(_HEADER, rows)}\n"


def of_verdicts() -> str:
    """Return how many claims of each paper have which verdict."""
    rows = []
    for name in names():
        sheet = load(name)
        counts = Counter(one.verdict for one in answered(sheet.claim, RECORDED))
        rows.append([escaped(sheet.title), str(len(sheet.claim)), *(str(counts[verdict]) for verdict in VERDICTS)])
    return markdown(("paper", "claims", *VERDICTS), rows) + "\n"


def table_rows(one: Answered) -> list[list[str]]:
    """A claim as rows of the table: the sentence with its verdict, and below it what was recorded."""
    claim, judged = one.claim, one.counts.total()
    of_several = f" ({one.counts[one.verdict]} of {judged})" if judged > 1 else ""
    bounds = claim.asked if one.answers else escaped(claim.why or "")
    head = [escaped(claim.place), escaped(claim.text), claim.theirs, bounds, f"**{one.verdict}**{of_several}"]
    emulated = any(answer.evidence.emulated for answer in one.answers)
    rows = [head]
    for _, group in groupby(one.answers, lambda answer: answer.evidence.recording):
        of_recording = list(group)
        if len(of_recording) > _TOGETHER:
            rows.append(_together(claim, of_recording))
        else:
            rows += [_row(claim, answer, emulated=emulated) for answer in of_recording]
    return rows


def _row(claim: Claim, answer: Answer, *, emulated: bool) -> list[str]:
    evidence, ours = answer.evidence, answer.evidence.estimate
    off = ""
    if answer.verdict != NOT_JUDGED and claim.published is not None and ours is not None:
        off = f" ({100 * (ours.mean / claim.published - 1):+.0f} %)"
    verdict = answer.verdict + off + (f": {escaped(answer.why_not)}" if answer.why_not else "")
    value = "-" if ours is None else _value(claim, ours)
    return [f"`{evidence.recording}`", escaped(evidence.text), value, _how(claim, evidence, emulated=emulated), verdict]


def _together(claim: Claim, answers: Sequence[Answer]) -> list[str]:
    """A line for many cells of one recording: the range of their means, and how often which verdict."""
    means = [answer.evidence.estimate.mean for answer in answers if answer.evidence.estimate is not None]
    ends = " to ".join(dict.fromkeys(_number(claim, end) for end in (min(means), max(means)))) if means else "-"
    counts = Counter(
        f"{answer.verdict}: {escaped(answer.why_not)}" if answer.why_not else answer.verdict for answer in answers
    )
    verdict = "; ".join(f"{count} {name}" for name, count in counts.most_common())
    labels = listed([*dict.fromkeys(answer.evidence.label for answer in answers)], _NAMED)
    first = answers[0].evidence
    what, how = f"{escaped(labels)}: {len(answers)} values", _how(claim, first, emulated=True)
    return [f"`{first.recording}`", what, f"{ends} {claim.unit}".rstrip(), how, verdict]


def _value(claim: Claim, estimate: MeanInterval) -> str:
    mean, low, high = (_number(claim, value) for value in (estimate.mean, estimate.low, estimate.high))
    between = f" ({low} to {high})" if estimate.bounded and low != high else ""
    return f"{mean}{claim.unit and ' '}{claim.unit}{between}"


def _number(claim: Claim, value: float) -> str:
    return f"{round(value, 3) + 0.0 if claim.unit else value:.3g}"


def _how(claim: Claim, evidence: Evidence, *, emulated: bool) -> str:
    """How the value was had, and why nothing was emulated where that would be possible and of use."""
    if claim.table is not None:
        return "by the step-time law"
    if evidence.emulated is not None:
        return f"emulated ({evidence.emulated})"
    load = None if emulated or evidence.load is None or claim.value in _BY_STEP else evidence.load()
    return "simulated" if load is None else f"simulated: {load}"


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
