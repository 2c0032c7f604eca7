"""Summaries, comparisons and the best algorithm, computed from rows. Pure.

Layout
    summary.py     from rows to cells, axes and pivots: labels that tell cells apart, and hosts that are kept apart
    axes.py        the axes and choices of a run, and the order of algorithms and values
    equivalence.py whether methods are as accurate as a reference
    best.py        the best algorithm on every network; paired.py: accuracy over equal seeds
    compare.py     the same cells at two values of an axis, and the cells of another run beside those of a pivot
"""
