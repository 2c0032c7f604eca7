"""The digests of trained weights, emulated beside simulated, as a table."""

from __future__ import annotations

import json
from collections import defaultdict

from wanbench_docs.curves import RECORDED
from wanbench_docs.markdown import markdown

_RUN = "dts-recipe-emulated"


def of_weights() -> str:
    """Return a line for each algorithm and seed that was trained on both testbeds."""
    digests: dict[tuple[str, int], dict[str, str]] = defaultdict(dict)
    for line in (RECORDED / _RUN / "rows.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["workers"] > 1 and row["status"] == "ok":
            digests[row["algorithm"], row["seed"]][row["testbed"]] = row["weights"]
    body = [
        [f"`{algorithm}`", str(seed), *(f"`{of[testbed][:16]}`" for testbed in ("netns", "virtual")), _equal(of)]
        for (algorithm, seed), of in digests.items()
    ]
    return markdown(("algorithm", "seed", "emulated", "simulated", ""), body) + "\n"


def _equal(of: dict[str, str]) -> str:
    return "equal" if of["netns"] == of["virtual"] else "differ"
