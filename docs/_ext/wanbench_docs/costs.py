"""The cost of a step of an algorithm: formulas of its page, typeset for readers and evaluated by a test.

The comment begins with `<!-- cost` and has the cost of one step, per worker:
    payload     bytes that the algorithm hands over
    wire        bytes that leave the worker with collective `direct`, without headers
    operations  operations that it begins, ssgd's buckets counted as one
    wait        time in which the step waits for messages, if the rate is unlimited

Below it, the page says what the formulas leave out, or that they are upper limits. A formula is Python over
    M     bytes of the model, 4 for each parameter
    N     workers
    D, p  delay and period in steps
    P     fragments
    s     staleness in rounds
    m     peers
    RTT   round-trip time
    Tc    compute time of a step
"""

from __future__ import annotations

import re

from wanbench_docs.markdown import markdown

_COST = re.compile(r"<!-- cost\n(.*?)-->", re.DOTALL)


def costs(page: str) -> dict[str, str]:
    """Return the formulas of a page by name."""
    (block,) = _COST.findall(page)
    return dict(line.split(": ") for line in block.splitlines())


def shown(page: str) -> str:
    """Return a page with its formulas as a table."""
    return _COST.sub(lambda match: _table(costs(match[0])), page)


def _table(cost: dict[str, str]) -> str:
    rows = [
        ("payload, bytes", f"${tex(cost['payload'])}$"),
        ("on the wire, bytes sent (`direct`)", f"${tex(cost['wire'])}$"),
        ("operations begun", f"${tex(cost['operations'])}$"),
        ("time spent waiting (unlimited rate)", f"${tex(cost['wait'])}$"),
    ]
    return markdown(("per step and worker", ""), rows)


def tex(formula: str) -> str:
    """Return a formula as LaTeX."""
    floor = re.sub(r"(\w+|\([^()]*\)) // (\w+|\([^()]*\))", r"\\lfloor \1 / \2 \\rfloor", formula)
    named = re.sub(r"\b(max|min)\b", r"\\\1", re.sub(r"\bTc\b", "T_c", floor))
    return re.sub(r"\bRTT\b", r"\\mathrm{RTT}", named.replace(" * ", r"\,"))
