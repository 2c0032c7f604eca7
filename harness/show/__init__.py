"""Everything that people look at.

Layout
    decision.py    the best algorithm of every network, which comes first
    tables.py      results as text; comparison.py: a comparison; changes.py: what changed when; grid.py: aligned columns
    figures/       results as figures
    report/        one page of a run
    notebook.py    what a run shows of itself in a notebook
    papers/        figure sets of papers, from recorded runs
"""
