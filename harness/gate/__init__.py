"""The gate: did scalability regress? What `wanbench check` says, and why.

Layout
    verdict.py      the words: verdicts, findings, a report and its exit code (pure)
    names.py        which cell of one side is which of the other (pure)
    exact.py        what a simulation or a count repeats exactly, against a baseline (pure)
    baseline.py     the committed file, one line a cell
    rule.py         measured times: paired log-ratios, margins, Holm, two looks, all cells together (pure)
    measured.py     rows of two sides -> findings (pure)
    noise.py        what this host measures where nothing changed: `check --aa`
    claims.py       [[gate.require]] (pure)
    sides.py        base and head: result folders, git revisions, images
    rounds.py pair.py  base and head by turns, each run by its own code
    check.py        against a baseline, or by requirements alone
    compare.py      base against head, until there is a verdict
    text.py summary.py annotations.py junit.py    what people and CI systems read
"""
