"""One invocation.

Layout
    together.py    measures what is left of a plan, alone or as one of several workers; repetitions.py: what is left
    session.py     executes repetitions; local.py: in slots, side by side; room.py: as many as the measured load allows;
                   turn.py: one emulated measurement at a time on a host
    ray_engine.py  a worker on every node of a cluster; desk.py: the run's folder as a node sees it
    attend.py      one repetition while the user watches: `wanbench exec`; closing.py: its last lines
    progress.py    progress on stderr; remaining.py: the time that is left;
                   redraw.py: figures while results come in
    auto.py        what `auto` means on this host
    doctor.py      what this host can do, and what is missing; host.py: checks before a run, leftovers;
                   ending.py: signals, and the private folder
    manifest.py    machine, kernel, versions, code
"""
