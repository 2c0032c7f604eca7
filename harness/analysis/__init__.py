"""Summaries, comparisons and the best algorithm, computed from rows. Pure.

Layout
    pooling.py     repetitions of which hosts are summarised together
    summary.py     from rows to cells, axes and pivots; labels.py: labels that tell cells apart; order.py: their order
    best.py        the best algorithm on every network; paired.py: accuracy over equal seeds
    compare.py     the same cells at two values of an axis
    beside.py      the cells of another run beside those of a pivot
"""
