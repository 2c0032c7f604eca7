"""Networks that change while workers train, and workers that are slow or killed.

Layout
    table.py     [[timeline]] of a spec: one change, as the user writes it
    trace.py     a recorded trace, from a CSV file
    changes.py   a change, resolved: plain data that is part of a cell
    edits.py     what a change makes of a network (pure)
    schedule.py  which network there is when (pure)
    player.py    gives an emulator each network when it is due
    file.py      a timeline without a spec, for `wanbench exec`
    told.py      what came when in a run, as text
    slow.py      which worker computes how slowly when
    kill.py      whose program is killed when, and started again
"""
