"""One invocation.

Layout
    together.py    measures what is left of a plan, alone or as one of several workers
    session.py     what is left; executes repetitions in slots, side by side
    room.py        as many side by side as the measured load allows
    ray_engine.py  a worker on every node of a cluster, and the run's folder as a node sees it
    attend.py      one repetition while the user watches, and its last lines: `wanbench exec`
    progress.py    progress on stderr, and the remaining time
    host.py        what `auto` means on this host, checks before a run, one emulation at a time, signals, leftovers
    doctor.py      what this host can do, and what is missing
    manifest.py    machine, kernel, versions, code
"""
