"""One invocation.

Layout
    session.py     executes the cells that are not finished; local.py: in slots, side by side
    attend.py      one repetition with its user looking on: `wanbench exec`
    progress.py    what is said meanwhile; redraw.py: figures while results come in
    auto.py        what `auto` means on this host
    doctor.py      what this host can do, and what is missing; host.py: what an earlier run may have left
    manifest.py    machine, kernel, versions, code
"""
