"""Results as people read them.

Layout
    best.py        the best algorithm in every case, which comes first
    tables.py      results as text; comparison.py: two values of an axis; grid.py: aligned columns, widths and units
    figures/       results as figures
    report/        one HTML page per run
    notebook.py    what a run displays of itself in a notebook
    papers/        figure sets of papers, from recorded runs
"""
