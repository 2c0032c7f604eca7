"""Networks that change while workers train, and workers that are slow or killed.

Layout
    changes.py   a change, resolved: plain data that is part of a cell
    edits.py     what a change makes of a network
    schedule.py  which network there is when
    file.py      a timeline without a spec, for `wanbench exec`
    kill.py      whose program is killed when, and started again

[[timeline]] of a spec and recorded traces are read in spec/ (timeline.py, trace.py). testbeds/player.py plays a
schedule, rep/stragglers.py tells workers when to be slow, show/timeline_table.py says what came when.
"""
