"""What is written beside an answer: every candidate with its reason, a spec, a snippet and a trial."""

from __future__ import annotations

import json
from pathlib import Path

from wanbench.harness.advise import own_evidence
from wanbench.harness.advise.answer import Answer, to_json
from wanbench.harness.advise.reproduce import emulation_spec, snippet, trial
from wanbench.harness.show.tables import objects_as_csv

_REPEATS = 3
BAND = 0.1  # simulated and emulated times agree so well in most cells
CANDIDATES, SPEC, SNIPPET, TRIAL, JSON = "candidates.csv", "advised.toml", "train.py", "trial.py", "advice.json"


def write(answer: Answer, folder: Path) -> list[Path]:
    """Write the files into the run's folder. Return their paths."""
    found, cell = answer.found, answer.advised.candidate.cell
    compared = [answer.advised, *([answer.runner_up] if answer.runner_up else []), answer.no_risk, found.baseline]
    texts = {
        CANDIDATES: _candidates(answer),
        SPEC: emulation_spec(found.question, [each.candidate.cell for each in compared], _REPEATS),
        SNIPPET: snippet(cell),
        TRIAL: trial(cell, answer.advised.step_time_s, BAND),
        JSON: json.dumps(to_json(answer), indent=1, allow_nan=False) + "\n",
    }
    if answer.proposal is not None:
        texts[own_evidence.FILE] = answer.proposal.text
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def _candidates(answer: Answer) -> str:
    """A line for each setting and collective: its times, its tier, and why it was not considered further."""
    found = answer.found
    simulated = {each.candidate.cell.key: each.step_time_s for each in found.simulated}
    lines = []
    for each in found.candidates:
        cell = each.cell
        lines.append(
            {
                "setting": cell.label,
                "collective": cell.collective,
                "law_s": each.law_s,
                "simulated_s": simulated.get(cell.key),
                "tier": str(each.evidence.tier),
                "more_steps": each.evidence.more_steps,
                "left_out": ""
                if cell.key in simulated
                else "slower by the law or by its bytes than those that were simulated",
            }
        )
    lines += [
        {**dict.fromkeys(lines[0]), "setting": each.label, "collective": each.collective, "left_out": each.reason}
        for each in found.left_out
    ]
    return objects_as_csv(lines)
