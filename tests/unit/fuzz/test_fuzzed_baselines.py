"""Any file is a baseline, or is refused with one clear line."""

from __future__ import annotations

import json
from importlib.metadata import version

from fuzzing import CASES, JUNK, damaged_json, fuzz, or_refused

from wanbench.harness.errors import SpecError
from wanbench.harness.gate import baseline

CELL = {"cell": "0aa323de7e6c", "testbed": "virtual", "emulator": None, "steps": 20, "payload_bytes": 400,
        "messages_sent": 5, "step_time_s": 0.3, "scalability": 0.9, "final_loss": 1.5}  # fmt: skip
BASELINE = {"experiment": "mine", "schema": 2, "wanbench": version("wanbench"), "spec": "7194e3c15f9a",
            "cells": {"ssgd w4": CELL, "dts-d4-p4 w4": CELL}}  # fmt: skip
BASELINES_OF_OLD = [
    "", "null", "[]", "{}", "[" * 100_000, '"x"',
    *(json.dumps({**BASELINE, "cells": cells}) for cells in ({}, None, [], "x", {"ssgd w4": None})),
    *(json.dumps({**BASELINE, "cells": {"ssgd w4": {**CELL, "step_time_s": value}}}) for value in JUNK),
]  # fmt: skip


@CASES
def test_a_damaged_baseline_is_a_baseline_or_is_refused_in_one_line(cases, tmp_path):
    file = tmp_path / "b.json"

    def as_baseline(text: str) -> None:
        file.write_text(text, encoding="utf-8")
        with or_refused(SpecError, where="b.json"):
            baseline.read(file, "mine")

    fuzz(cases, damaged_json(BASELINE), as_baseline, BASELINES_OF_OLD)
