"""Any file is a baseline, or is refused with one clear line."""

from __future__ import annotations

import json

from fuzzing import CASES, damaged_json, fuzz, or_refused

from wanbench.harness.errors import SpecError
from wanbench.harness.gate import baseline

ENTRY = {"testbed": "virtual", "step_time_s": 0.1, "scalability": 0.9, "final_loss": None}
BASELINE = {"experiment": "x", "schema": 1, "cells": {"ssgd-w2": ENTRY, "dts-w2": ENTRY}}


@CASES
def test_a_damaged_baseline_is_read_or_refused_in_one_line(cases, tmp_path):
    file = tmp_path / "b.json"

    def as_baseline(text: str) -> None:
        file.write_text(text, encoding="utf-8")
        with or_refused(SpecError, where="b.json"):
            assert isinstance(baseline.read(file), dict)

    corpus = ["", "null", '"text"', "[]", "{}", json.dumps(BASELINE).replace("0.9", "Infinity"), "[" * 100_000]
    fuzz(cases, damaged_json(BASELINE), as_baseline, corpus)
