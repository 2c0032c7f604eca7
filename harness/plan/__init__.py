"""From a spec to the cells that will run.

Layout
    plan.py        Plan: a spec, its cells and the values chosen for `auto`; stored with the run
    expand.py      from a spec to the cells of its sweep, each with the one-worker cell that it is divided by
    cell.py        Cell: one point of a sweep, and its identity; network.py: its network
    repetition.py  one measured execution of a cell, resolved: its network, schedule, jobs and limits
    registry.py    algorithms and workloads as a plan knows them; asks users' code in a process of its own
    checks.py      refuses cells whose parts do not fit together
    auto.py        Host: chooses the values of `auto`; the largest payload scale at which it keeps up
    law.py         the step-time law, and what stragglers cost delayed methods
    conditions.py  the one round trip and one rate by which the law knows a network, and where it does not hold
    ring_order.py  the order of the workers in `ring`
    collective.py  the fastest collective of a network; pacing.py: how fast its connections send
    host_tcp.py    the TCP buffers of kernels, and what a connection carries with them
    load.py        which repetitions run side by side, and how long a run takes
"""
