"""The gate: `wanbench check` decides whether scalability regressed, and reports why.

Layout
    verdict.py      verdicts, judgements, a report and its exit code; names of cells that match across two sides (pure)
    exact.py        exact values, from simulations and counts, against a baseline (pure)
    baseline.py     the committed file, one line per cell
    rule.py         the test of measured times: paired log-ratios, margins, Holm, two looks, all cells together (pure)
    measured.py     from rows of two sides to judgements (pure)
    noise.py        the noise of this host, measured with equal sides: `check --aa`
    claims.py       [[gate.require]] (pure)
    sides.py        base and head: result folders, git revisions, images; measured alternately, each by its own code
    own/            leads a side's imports to its own files
    check.py        against a baseline, only by requirements, or base against head until a verdict is reached
    journal.py      the file of `--append`
    output.py       text, Markdown, annotations of GitHub and JUnit XML
    services.py     formats of services that watch benchmarks: Bencher, github-action-benchmark, asv
"""
