"""One repetition: a training run or a program, on any testbed, judged for fidelity.

Layout
    measure.py     a repetition of a training run, or of any kind, and the probe of its network
    command.py     a repetition of a user's program, timed
    sources.py     which code a repetition ran, and whether it changed meanwhile
    program.py     starts a program as torchrun would; outputs.py: its output; launcher.py: ranks that it starts itself
    fidelity.py    judges whether the emulation was faithful during the repetition
"""
