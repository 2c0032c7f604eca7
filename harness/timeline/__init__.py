"""Timelines: networks that change during training, and workers that are slow or killed.

Layout
    changes.py   resolved changes: plain data that is part of a cell
    edits.py     the effect of a change on a network
    schedule.py  the network at each time
    file.py      a timeline without a spec, for `wanbench exec`
    convert.py   recordings of other tools as traces, for `wanbench trace`
    kill.py      programs that are killed and started again

spec/timeline.py and spec/trace.py read [[timeline]] of a spec and recorded traces. testbeds/player.py applies a
schedule, plan/repetition.py slows workers down, and show/tables.py prints the actual times.
"""
