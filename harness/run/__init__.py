"""One invocation.

Layout
    session.py     executes the cells that are not finished; local.py: in slots, side by side;
                   room.py: as many as the measured load allows
    attend.py      one repetition while the user watches: `wanbench exec`; closing.py: its last lines
    progress.py    progress on stderr; remaining.py: the time that is left;
                   redraw.py: figures while results come in
    auto.py        what `auto` means on this host
    doctor.py      what this host can do, and what is missing; host.py: checks before a run, leftovers
    manifest.py    machine, kernel, versions, code
"""
