"""Timelines: networks that change during training, and workers that are slow or killed.

Layout
    changes.py   resolved changes: plain data that is part of a cell
    edits.py     the effect of a change on a network
    schedule.py  the network and the commands to workers at each time, also of a file without a spec
    failures.py  workers or sites that fail at random
    convert.py   recordings of other tools as traces, for `wanbench trace`

spec/timeline.py reads [[timeline]] of a spec and recorded traces. testbeds/player.py applies a
schedule, plan/repetition.py slows workers down, and show/tables.py prints the actual times.
"""
