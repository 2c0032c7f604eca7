"""Networks that change while workers train, and workers that are slow or killed.

Layout
    changes.py   a change, resolved: plain data that is part of a cell
    edits.py     what a change makes of a network (pure)
    schedule.py  which network there is when (pure)
    file.py      a timeline without a spec, for `wanbench exec`
    kill.py      whose program is killed when, and started again

How a user writes them: spec/timeline.py, spec/trace.py. Who plays them: players, beside the testbeds.
"""
