"""The rates that Streaming DiLoCo and Eager Updates publish for a share of compute, beside the step-time law's.

    python benchmarks/streaming_utilisation.py [FILE]

Their numbers are simulated too (a graph of layers, two workers, rates on a grid of factors 1.207), so this compares two
models. Conditions as printed: layers and seconds of a step; H 100; fragments of 3 layers, sent every 11, 5 and 2 steps.
Chosen here: parameters are 1e9, 1e10 and 1e11; values have 16 bits, 4 where the source says FP4; no round trip;
the forward pass takes a third of a step. Sources: arXiv 2501.18512, Table 4 (read); arXiv 2502.12996, Table 5, of which
only the last row is used (second-hand).
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

from wanbench.harness.advise.between_sites import needed_bps
from wanbench.harness.plan.law import PredictInputs

FILE = Path("results/reference/streaming-utilisation/rates.csv")
SHARES = (0.5, 0.8, 0.9, 0.95, 0.99)
GRID = 1.207
H = 100
# (parameters, layers, seconds of a step, steps between fragments)
MODELS = {"1B": (1e9, 24, 0.1, 11), "10B": (1e10, 48, 0.8, 5), "100B": (1e11, 108, 4.9, 2)}
# Gbit/s for 50, 80, 90, 95 and 99 %, as printed.
PUBLISHED = {
    ("1B", "data parallel"): "86.8 152.6 184.2 222.3 569.0",
    ("1B", "DiLoCo"): "1.4 6.2 13.3 23.3 86.8",
    ("1B", "streaming"): "1.4 5.2 9.1 16.0 28.1",
    ("1B", "streaming, 1 step late"): "1.4 4.3 6.2 9.1 11.0",
    ("1B", "streaming, 1 step late, FP4"): "0.4 0.9 1.7 2.0 3.0",
    ("1B", "streaming, H steps late, FP4"): "0.1 0.2 0.2 0.2 0.2",
    ("10B", "data parallel"): "104.8 222.3 222.3 268.3 471.5",
    ("10B", "DiLoCo"): "1.7 7.5 16.0 33.9 104.8",
    ("10B", "streaming"): "1.7 5.2 9.1 13.3 19.3",
    ("10B", "streaming, 1 step late"): "1.7 3.6 5.2 6.2 7.5",
    ("10B", "streaming, 1 step late, FP4"): "0.4 0.9 1.4 1.4 1.7",
    ("10B", "streaming, H steps late, FP4"): "0.1 0.2 0.2 0.3 0.3",
    ("100B", "data parallel"): "184.2 323.8 390.7 390.7 471.5",
    ("100B", "DiLoCo"): "3.0 11.0 23.3 49.4 184.2",
    ("100B", "streaming"): "2.4 6.2 9.1 11.0 19.3",
    ("100B", "streaming, 1 step late"): "1.7 3.6 4.3 5.2 5.2",
    ("100B", "streaming, 1 step late, FP4"): "0.5 0.9 1.1 1.1 1.4",
    ("100B", "streaming, H steps late, FP4"): "0.2 0.3 0.3 0.3 0.4",
}


def inputs(model: str, method: str) -> PredictInputs:
    """What the law reads for a model and a method."""
    params, layers, step_s, every = MODELS[model]
    whole = 2 * params
    law = PredictInputs(workers=2, step_time_s=step_s, rtt_s=0.0, rate_bytes_per_s=1e9, message_bytes=int(whole))
    if method == "data parallel":
        ready = [step_s * (1 + 2 * (layer + 1) / layers) / 3 for layer in range(layers)]
        return _with(law, buckets=tuple((int(whole / layers), ready_s) for ready_s in ready))
    if method == "DiLoCo":
        return _with(law, period=H)
    bits = 0.25 if "FP4" in method else 1.0
    delay = H if "H steps" in method else 1 if "late" in method else 0
    return _with(law, message_bytes=int(bits * whole * 3 / layers), period=every, delay=delay)


def _with(law: PredictInputs, **changes: object) -> PredictInputs:
    return PredictInputs.from_json({**law.to_json(), **changes})


def rows() -> Iterator[dict[str, object]]:
    """A row for each printed number."""
    for (model, method), printed in PUBLISHED.items():
        for share, text in zip(SHARES, printed.split(), strict=True):
            needed = needed_bps(inputs(model, method), share)
            gbit = float("inf") if needed is None else needed / 1e9
            yield {
                "model": model, "method": method, "computes_pct": round(100 * share), "published_gbit": text,
                "law_gbit": f"{gbit:.3g}", "law_over_published": f"{gbit / float(text):.2f}",
            }  # fmt: skip


def main(file: Path) -> None:
    """Write the file, and print how far the law is from what is published."""
    table = [*rows()]
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(table[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
    for method in dict.fromkeys(method for _, method in PUBLISHED):
        ratios = [float(str(row["law_over_published"])) for row in table if row["method"] == method]
        near = sum(1 / GRID <= ratio <= GRID for ratio in ratios)
        print(f"{method:30} {near} of {len(ratios)} within a step of the grid; {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)
