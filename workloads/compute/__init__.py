"""The computation of a step and its duration, real or emulated.

Layout
    task.py        a gradient for each step, on flat vectors
    emulated.py    how long a step takes, also of a straggler, and when each bucket is ready
    buckets.py     gradients sent together
    optim.py       the local optimizer
"""
