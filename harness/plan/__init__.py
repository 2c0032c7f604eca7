"""From a spec to what will run.

Layout
    plan.py        Plan: a spec, its cells and what `auto` became; stored with the run
    expand.py      from a spec to the cells of its sweep, each with the one-worker cell that it is divided by
    cell.py        Cell: one point of a sweep, and its identity; network.py: the network of one
    checks.py      what only shows when the parts of a cell come together
    auto.py        Host: who is asked what `auto` means
    law.py         the step-time law; conditions.py: one round trip and one rate that stand for a network
    load.py        which repetitions run side by side, and how long it all takes
"""
