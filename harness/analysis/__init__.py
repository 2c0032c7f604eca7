"""What follows from rows. Pure.

Layout
    scalability.py T(1) / T(N): which one-worker cell, and which of its repetitions
    summary.py     from rows to cells, axes and pivots; labels.py: what tells cells apart; order.py: their order
    best.py        the best algorithm of every network; paired.py: accuracy over equal seeds
    compare.py     the same cells at two values of an axis
"""
