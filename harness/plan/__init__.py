"""From a spec to the cells that will run.

Layout
    plan.py        Plan: a spec, its cells and the values chosen for `auto`; stored with the run
    expand.py      from a spec to the cells of its sweep, each with the one-worker cell that it is divided by
    cell.py        Cell: one point of a sweep, and its identity; network.py, workload.py: its network and its workload
    step_times.py  the step time of each worker, where machines differ
    losses.py      the failures of a repetition, and the deadline of the others
    known.py       what is known of an algorithm or a workload; asks users' code in a process of its own
    checks.py      refuses cells whose parts do not fit together
    auto.py        Host: chooses the value of `auto`
    law.py         the step-time law; conditions.py: the one round trip and one rate by which it knows a network
    staleness.py   what stragglers cost delayed methods; limits.py: where the law does not hold
    ring_order.py  the order of the workers in `ring`
    collective.py  the fastest collective of a network; pacing.py: how fast its connections send
    load.py        which repetitions run side by side, and how long a run takes; scale.py: the payload scale of `auto`
"""
