"""The cost of a step of every algorithm, as formulas that a page shows and a test evaluates.

A formula is a Python expression over
    M     bytes of the model, 4 for each parameter
    N     workers
    D, p  delay and period in steps
    m     peers
    RTT   round-trip time
    Tc    compute time of a step
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from wanbench_docs.markdown import markdown

_ROUND = "min(D, RTT // (2 * Tc) + 1)"
_LATE = "max(0, RTT - D * Tc) / (p * (D // p + 1))"


@dataclass(frozen=True)
class Cost:
    """The cost of one step, per worker.

    Attributes:
        payload: bytes that the algorithm hands over.
        operations: operations that it begins, ssgd's buckets counted as one.
        wire: bytes that leave the worker with collective `direct`, without headers.
        wait: time in which the step waits for messages, if the rate is unlimited.
        note: what the formulas leave out.
    """

    payload: str
    operations: str
    wire: str
    wait: str
    note: str = ""


def _each_step(wait: str, note: str = "") -> Cost:
    return Cost("M", "1", "2 * M * (N - 1) / N", wait, note)


def _each_period(wait: str, note: str = "") -> Cost:
    return Cost("M / p", "1 / p", "2 * M * (N - 1) / (N * p)", wait, note)


_BLOCKS = Cost("2 * M * (N - 1) / N", "2", "2 * M * (N - 1) / N", "RTT", "If blocks are lost, it waits for `silence`.")
_RING = Cost("2 * M", "2", "2 * M", "max(0, RTT / 2 - Tc)", "With two workers each has one neighbour: halve the bytes.")

COSTS: Mapping[str, Cost] = {
    "local": Cost("0", "0", "0", "0"),
    "ssgd": _each_step("RTT", "Buckets overlap with the backward pass; the step waits for the last."),
    "delayed": _each_step("max(0, RTT - D * Tc) / (D + 1)"),
    "sparse": _each_period("RTT / p", "With momentum and p > 1 it sends two vectors: double the bytes."),
    "dts": _each_period(_LATE, "With momentum, p > 1 and `tensors = 2` it sends two vectors: double the bytes."),
    "dga": _each_period(_LATE),
    "localsgd": _each_period("RTT / p"),
    "cocod": _each_period("max(0, RTT - p * Tc) / (2 * p)"),
    "overlap-localsgd": _each_period("max(0, RTT - p * Tc) / p", "Only one average is in flight at a time."),
    "diloco": _each_period("RTT / p"),
    "streaming-diloco": Cost(
        "M / p", "P / p", "2 * M * (N - 1) / (N * p)", "max(0, RTT - D * Tc) / (p / P * (D // (p / P) + 1))",
        "P is the number of fragments, p is H, and D is tau.",
    ),
    "eager-diloco": _each_period(
        "max(0, RTT - s * p * Tc) / (p * (s + 1))", "s is the staleness in rounds, by default 1; p is H: D = s p."
    ),
    "sparseloco": Cost(
        "15 * M / (2048 * p)", "1 / p", "(N - 1) * 15 * M / (2048 * p)", "RTT / (2 * p)",
        "With the default compressor, 120 bytes for 4096 parameters: every worker receives the messages of all others.",
    ),
    "async-local-sgd": Cost(
        "2 * M * (N - 1) / (N * p)", "4 * (N - 1) / (N * p)", "2 * M * (N - 1) / (N * p)", "RTT / p",
        "With workers of equal speed. Rank 0 sends half of the bytes.",
    ),
    "halos": Cost(
        "2 * M / p", "4 / p", "2 * M / p", "0",
        "Upper limits, with one worker per site. In a site of several, workers wait for their messages to its server. "
        "Between sites, a region sends and receives M every K updates.",
    ),
    "olco3": _each_period("max(0, RTT - s * p * Tc) / (p * (s + 1))", "s is the staleness in rounds: D = s p."),
    "rps": _BLOCKS,
    "gradient-sharing": _BLOCKS,
    "sgp": Cost("m * (M + 4)", "m", "m * (M + 4)", "RTT / 2", "The 4 bytes are the push-sum weight."),
    "osgp": Cost(
        f"m * (M + 8) / {_ROUND}", f"2 * m / {_ROUND}", f"m * (M + 8) / {_ROUND}", "max(0, RTT / 2 - D * Tc) / D",
        "The 8 bytes are the push-sum weight. The divisor is the number of steps that a round takes. "
        "The end sends one more number to each out-neighbour.",
    ),
    "dpsgd": _RING,
    "ecdpsgd": replace(_RING, note="Without compression."),
    "adpsgd": Cost(
        "M", "3 / 2", "M", "0", "Upper limits: a worker waits for an answer before it asks again."
    ),
}  # fmt: skip


def tex(formula: str) -> str:
    """Return a formula as LaTeX."""
    floor = re.sub(r"(\w+|\([^()]*\)) // (\w+|\([^()]*\))", r"\\lfloor \1 / \2 \\rfloor", formula)
    named = re.sub(r"\b(max|min)\b", r"\\\1", re.sub(r"\bTc\b", "T_c", floor))
    return re.sub(r"\bRTT\b", r"\\mathrm{RTT}", named.replace(" * ", r"\,"))


def of_cost(kind: str) -> str:
    """Return the cost of an algorithm as a table."""
    cost = COSTS[kind]
    rows = [
        ("payload, bytes", f"${tex(cost.payload)}$"),
        ("on the wire, bytes sent (`direct`)", f"${tex(cost.wire)}$"),
        ("operations begun", f"${tex(cost.operations)}$"),
        ("time spent waiting (unlimited rate)", f"${tex(cost.wait)}$"),
    ]
    return f"{markdown(('per step and worker', ''), rows)}\n{cost.note}\n"
